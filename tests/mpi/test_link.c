/* SPDX-License-Identifier: BSD-3-Clause */
/* test_link CLAIRFS-PEER [--messages N] [--garbage] [--bulk BYTES] [--idle SECONDS]
 *           [--kill-peer NODE] [--kill-mount NODE] [--lost NODE] [--rogue NODE] [--pace US]
 *           [--until-end FILE]
 * Run by mpirun, one a node: stands for the mount process, starts the peer process, and
 * checks all that link.h promises. --lost: NODE will be cut off by somebody else. --rogue:
 * NODE is another program that sends garbage. --until-end: in a session of its own, until
 * the job is ended from outside; FILE.NODE then says whether END came (end) or not (gone). */
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "link_world.h"

#define WINDOW 16u /* messages from one node to another under way */
#define LEAVING 100 /* the last phase */
#define SLOT ((uint64_t)CLAIR_LINK_PAYLOAD)

enum type { TYPE_DATA = 1, TYPE_CREDIT, TYPE_PHASE, TYPE_PING, TYPE_PONG };

struct note { /* begins the small bytes */
	uint32_t type, index;
	uint64_t value;
};

struct stream { /* of messages, to and from one other node */
	uint32_t sent, credit, landed, received, promised;
	uint32_t sent_open[WINDOW]; /* tokens + 1 that are owed, by slot */
	enum { NOT_LANDED, LANDED, UNLANDING, UNLANDED } landing[WINDOW];
	uint32_t phase;
};

static struct options {
	uint32_t messages, idle, pace;
	uint64_t bulk;
	int kill_peer, kill_mount, lost, rogue;
	bool garbage;
	const char *until_end;
} options = { .kill_peer = -1, .kill_mount = -1, .lost = -1, .rogue = -1 };
static struct stream streams[WORLD_NODES];
static char *out_region, *in_region;
static uint64_t bulk_bytes, lost, unlanded, pongs;
static uint32_t bulks;
static pid_t peer_pid;

struct plan {
	uint32_t small;
	uint64_t length, seed, key;
	bool land, unland;
};

static struct plan plan_of(uint32_t from, uint32_t to, uint32_t i)
{
	uint64_t seed = world_random(((uint64_t)from << 40) ^ ((uint64_t)to << 20), i);
	uint64_t r = world_random(seed, 1);
	struct plan p = { .seed = seed, .key = ((uint64_t)from << 48) | i };

	p.small = (uint32_t)(r % 16 ? r % 200 : r % (CLAIR_LINK_SMALL - sizeof(struct note)));
	p.small += (uint32_t)sizeof(struct note);
	r = world_random(seed, 2);
	if (r & 1)
		p.length = 1 + (r >> 8) % ((r >> 1) % 100 == 0	? CLAIR_LINK_PAYLOAD
					   : (r >> 1) % 8 == 0 ? 300000
								: 20000);
	r = world_random(seed, 3);
	p.land = r % 16 != 0;
	p.unland = p.land && (r >> 8) % 8 == 0;
	return p;
}

static uint64_t slot_offset(uint32_t node, uint32_t i)
{
	return ((uint64_t)node * WINDOW + i % WINDOW) * SLOT;
}

static void say(struct world *w, uint32_t to, enum type type, uint32_t index, uint64_t value)
{
	struct note n = { type, index, value };

	world_send_frame(w,
			 (struct clair_link_frame){ .kind = CLAIR_LINK_SEND,
						    .node = to,
						    .small = sizeof n,
						    .token = UINT64_MAX },
			 &n, -1);
}

static void land_more(struct world *w, uint32_t from)
{
	struct stream *s = &streams[from];

	for (; s->landed < options.messages && s->landed < s->received + WINDOW; s->landed++) {
		struct plan p = plan_of(from, w->self, s->landed);
		s->landing[s->landed % WINDOW] = NOT_LANDED;
		if (!p.length || !p.land)
			continue;
		world_send_frame(
			w,
			(struct clair_link_frame){ .kind = CLAIR_LINK_LAND,
						   .key = p.key,
						   .region = 2,
						   .offset = slot_offset(from, s->landed),
						   .length = p.length + (p.seed & 1) },
			NULL, -1);
		s->landing[s->landed % WINDOW] = LANDED;
	}
	if (s->landed >= s->promised + WINDOW / 4 ||
	    (s->landed == options.messages && s->promised != s->landed)) {
		s->promised = s->landed;
		say(w, from, TYPE_CREDIT, s->landed, 0);
	}
}

static void maybe_unland(struct world *w, uint32_t from)
{
	struct stream *s = &streams[from];

	for (uint32_t i = s->received; i < s->landed; i++) {
		struct plan p = plan_of(from, w->self, i);
		/* some before, some while they arrive */
		if (!p.unland || s->landing[i % WINDOW] != LANDED ||
		    i - s->received > (p.seed >> 4) % WINDOW)
			continue;
		s->landing[i % WINDOW] = UNLANDING;
		world_send_frame(
			w, (struct clair_link_frame){ .kind = CLAIR_LINK_UNLAND, .key = p.key },
			NULL, -1);
	}
}

static void take_data(struct world *w, const struct clair_link_frame *f, const struct note *n,
		      const char *small)
{
	struct stream *s = &streams[f->node];
	struct plan p = plan_of(f->node, w->self, n->index);
	unsigned state = s->landing[n->index % WINDOW];

	if (n->index != s->received)
		world_fail(w, "message %u of node %u instead of %u", n->index, f->node,
			   s->received);
	if (f->small != p.small || f->length != p.length ||
	    !world_filled(small + sizeof *n, p.small - sizeof *n, p.seed))
		world_fail(w, "message %u of node %u is wrong", n->index, f->node);
	if (p.length && f->key != p.key)
		world_fail(w, "key of message %u", n->index);
	if (f->flags & CLAIR_LINK_LOST) {
		lost++;
		if (!p.length || state == LANDED)
			world_fail(w, "message %u of node %u was lost, state %u", n->index,
				   f->node, state);
	} else if (p.length) {
		if (state != LANDED && state != UNLANDING)
			world_fail(w, "message %u landed nowhere", n->index);
		if (!world_filled(in_region + slot_offset(f->node, n->index), p.length, p.seed))
			world_fail(w, "payload %u of node %u is wrong", n->index, f->node);
	}
	s->received++;
}

static void take_bulk(struct world *w, const struct clair_link_frame *f, int fd)
{
	if (fd < 0 || f->length != options.bulk)
		world_fail(w, "a bulk of %llu bytes", (unsigned long long)f->length);
	char *at = mmap(NULL, f->length, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED || !world_filled(at, f->length, 1000 + f->node))
		world_fail(w, "the bulk of node %u is wrong", f->node);
	munmap(at, f->length);
	close(fd);
	bulk_bytes += f->length;
	bulks++;
}

static void take(struct world *w, const struct clair_link_frame *f, const char *small, int fd)
{
	struct note n;

	if (options.rogue >= 0 && f->node == (uint32_t)options.rogue &&
	    f->kind != CLAIR_LINK_UNLANDED) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (f->kind == CLAIR_LINK_BULKED) {
		take_bulk(w, f, fd);
		return;
	}
	if (f->kind == CLAIR_LINK_UNLANDED) {
		uint32_t from = (uint32_t)(f->key >> 48) % WORLD_NODES;
		uint32_t i = (uint32_t)f->key;
		if (streams[from].landing[i % WINDOW] == UNLANDING && i >= streams[from].received)
			streams[from].landing[i % WINDOW] = UNLANDED;
		unlanded++;
		return;
	}
	if (f->kind != CLAIR_LINK_MESSAGE || f->small < sizeof n || f->node >= w->count)
		world_fail(w, "frame of kind %u, %u bytes", f->kind, f->small);
	memcpy(&n, small, sizeof n);
	struct stream *s = &streams[f->node];
	if (n.type == TYPE_DATA)
		take_data(w, f, &n, small);
	else if (n.type == TYPE_CREDIT)
		s->credit = n.index;
	else if (n.type == TYPE_PHASE)
		s->phase = n.index;
	else if (n.type == TYPE_PING)
		say(w, f->node, TYPE_PONG, n.index, n.value);
	else if (n.type == TYPE_PONG)
		pongs = n.index;
	else
		world_fail(w, "message of type %u", n.type);
}

/* Sends what has credit; the slot of a payload is free once its message was delivered, which
 * the credit says too. */
static bool send_more(struct world *w, uint32_t to)
{
	static char small[CLAIR_LINK_SMALL];
	struct stream *s = &streams[to];
	bool any = false;

	for (; s->sent < s->credit && s->sent < options.messages; s->sent++) {
		struct plan p = plan_of(w->self, to, s->sent);
		struct note n = { TYPE_DATA, s->sent, 0 };
		memcpy(small, &n, sizeof n);
		world_fill(small + sizeof n, p.small - sizeof n, p.seed);
		world_fill(out_region + slot_offset(to, s->sent), p.length, p.seed);
		world_send_frame(w,
				 (struct clair_link_frame){ .kind = CLAIR_LINK_SEND,
							    .node = to,
							    .small = p.small,
							    .region = 1,
							    .offset = slot_offset(to, s->sent),
							    .length = p.length,
							    .key = p.key,
							    .token = s->sent },
				 small, -1);
		any = true;
		if (options.pace) {
			usleep(options.pace);
			s->sent++;
			break;
		}
	}
	return any;
}

static bool other(const struct world *w, uint32_t i)
{
	return i != w->self && !w->dead[i] && (int)i != options.rogue;
}

static bool exchanged(const struct world *w)
{
	for (uint32_t i = 0; i < w->count; i++)
		if (other(w, i) && (streams[i].sent < options.messages ||
				    streams[i].received < options.messages))
			return false;
	return w->sents == w->sends;
}

static uint32_t progress(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->count; i++)
		n += streams[i].received;
	return n;
}

static void exchange(struct world *w)
{
	uint32_t last = 0, half = options.messages * (w->count - 1) / 2;
	int64_t moved = clair_now_ns();

	while (!exchanged(w)) {
		bool any = false;
		for (uint32_t i = 0; i < w->count; i++)
			if (other(w, i)) {
				land_more(w, i);
				maybe_unland(w, i);
				any |= send_more(w, i);
			}
		world_turn(w, any ? 0 : 20);
		uint32_t now = progress(w);
		if (now != last)
			moved = clair_now_ns();
		else if (clair_now_ns() - moved > WORLD_WAIT_S * CLAIR_NS_PER_S)
			world_fail(w, "the exchange stands still at %u messages", now);
		last = now;
		if (now >= half && options.kill_peer == (int)w->self) {
			kill(peer_pid, SIGKILL);
			_exit(0);
		}
		if (now >= half && options.kill_mount == (int)w->self)
			raise(SIGKILL);
	}
}

/* Until all others that live have come as far. */
static void phase(struct world *w, uint32_t number)
{
	int64_t end = clair_now_ns() + WORLD_WAIT_S * CLAIR_NS_PER_S;

	for (uint32_t i = 0; i < w->count; i++)
		if (other(w, i))
			say(w, i, TYPE_PHASE, number, 0);
	for (;;) {
		bool all = true;
		for (uint32_t i = 0; i < w->count; i++)
			all = all && (!other(w, i) || streams[i].phase >= number);
		if (all)
			return;
		if (w->ended && number == LEAVING)
			return; /* the first one was through */
		if (w->ended)
			world_fail(w, "END in phase %u", number);
		if (clair_now_ns() > end)
			world_fail(w, "nobody came to phase %u", number);
		world_turn(w, 20);
	}
}

static void bulk(struct world *w)
{
	int fd = memfd_create("test-bulk", MFD_CLOEXEC);
	int64_t end = clair_now_ns() + WORLD_WAIT_S * CLAIR_NS_PER_S;

	if (fd < 0 || ftruncate(fd, (off_t)options.bulk) < 0)
		world_fail(w, "memfd: %m");
	char *at = mmap(NULL, options.bulk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	world_fill(at, options.bulk, 1000 + w->self);
	int64_t start = clair_now_ns();
	if (w->self < 2)
		world_send_frame(w,
				 (struct clair_link_frame){ .kind = CLAIR_LINK_BULK,
							    .length = options.bulk },
				 NULL, fd);
	while (bulks < (w->self < 2 ? 1 : 2)) {
		if (clair_now_ns() > end)
			world_fail(w, "bulk has not come");
		world_turn(w, 20);
	}
	printf("node %u: %u bulks of %llu bytes in %.2f s\n", w->self, bulks,
	       (unsigned long long)options.bulk, (double)(clair_now_ns() - start) / 1e9);
	munmap(at, options.bulk);
	close(fd);
}

/* CPU time of the peer process, ns. */
static int64_t cpu_of_peer(void)
{
	char path[64];
	unsigned long user = 0, kernel = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)peer_pid);
	autofclose FILE *f = fopen(path, "re");
	if (!f || fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
			 &user, &kernel) != 2)
		return 0;
	return (int64_t)(user + kernel) * (CLAIR_NS_PER_S / sysconf(_SC_CLK_TCK));
}

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void wake_ups(struct world *w)
{
	enum { COUNT = 100 };
	int64_t took[COUNT];

	pongs = 0;
	for (uint32_t i = 1; i <= COUNT; i++) {
		int64_t rest = clair_now_ns() + (20 + (int64_t)(i * 7 % 50)) * CLAIR_NS_PER_MS;
		while (clair_now_ns() < rest)
			world_turn(w, (int)((rest - clair_now_ns()) / CLAIR_NS_PER_MS) + 1);
		int64_t start = clair_now_ns();
		say(w, 1, TYPE_PING, i, 0);
		while (pongs < i) {
			if (clair_now_ns() - start > WORLD_WAIT_S * CLAIR_NS_PER_S)
				world_fail(w, "no answer to a sleeper's ping");
			world_turn(w, 100);
		}
		took[i - 1] = clair_now_ns() - start;
	}
	qsort(took, COUNT, sizeof *took, by_size);
	printf("wake-up, there and back: median %.0f us, 90 %% %.0f us, max %.0f us\n",
	       (double)took[COUNT / 2] / 1e3, (double)took[COUNT * 9 / 10] / 1e3,
	       (double)took[COUNT - 1] / 1e3);
	/* Loosely: a loaded machine must not fail it, a missing doorbell shall. */
	if (took[COUNT / 4] > 25 * CLAIR_NS_PER_MS)
		world_fail(w, "sleeping nodes wake too late");
}

static void idle(struct world *w)
{
	int64_t end = clair_now_ns() + 1500 * CLAIR_NS_PER_MS;

	while (clair_now_ns() < end + 3 * CLAIR_NS_PER_S) /* questions end */
		world_turn(w, 100);
	int64_t before = cpu_of_peer(), start = clair_now_ns();
	end = start + options.idle * CLAIR_NS_PER_S;
	while (clair_now_ns() < end)
		world_turn(w, 500);
	double share = (double)(cpu_of_peer() - before) / (double)(clair_now_ns() - start);
	printf("node %u: idle, %.2f %% of a core\n", w->self, share * 100);
	if (share > 0.05)
		world_fail(w, "an idle peer process takes %.1f %% of a core", share * 100);
	phase(w, 90);
	if (w->self == 0 && w->count > 1)
		wake_ups(w);
}

static char *region(struct world *w, uint32_t id)
{
	uint64_t length = (uint64_t)WORLD_NODES * WINDOW * SLOT;
	int fd = memfd_create("test-region", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)length) < 0)
		world_fail(w, "memfd: %m");
	char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		world_fail(w, "mmap: %m");
	world_send_frame(w,
			 (struct clair_link_frame){
				 .kind = CLAIR_LINK_REGION, .region = id, .length = length },
			 NULL, fd);
	close(fd);
	return at;
}

static void want_dead(struct world *w, int node)
{
	int64_t end = clair_now_ns() + 20 * CLAIR_NS_PER_S;

	if (node < 0 || node == (int)w->self)
		return;
	while (!w->dead[node] && world_living(w)) {
		if (clair_now_ns() > end)
			world_fail(w, "node %d is not known to be down", node);
		world_turn(w, 20);
	}
}

static void leave(struct world *w)
{
	int64_t end = clair_now_ns() + 20 * CLAIR_NS_PER_S;
	uint32_t first = 0;

	phase(w, LEAVING);
	while (first < w->self && (w->dead[first] || (int)first == options.rogue))
		first++;
	if (first == w->self) {
		world_send_frame(w, (struct clair_link_frame){ .kind = CLAIR_LINK_BYE }, NULL, -1);
		return;
	}
	while (!w->ended && world_living(w)) {
		if (clair_now_ns() > end)
			world_fail(w, "no END");
		world_turn(w, 20);
	}
}

static int until_end(struct world *w)
{
	char path[512];
	int64_t end = clair_now_ns() + WORLD_WAIT_S * CLAIR_NS_PER_S;

	w->may_go = true;
	printf("node %u: waits\n", w->self);
	fflush(stdout);
	while (!w->ended && !w->gone && clair_now_ns() < end)
		world_turn(w, 100);
	snprintf(path, sizeof path, "%s.%u", options.until_end, w->self);
	FILE *f = fopen(path, "we");
	if (!f)
		return 1;
	fprintf(f, "%s\n", w->ended ? "end" : w->gone ? "gone" : "late");
	fclose(f);
	return 0;
}

static int mount_main(int fd)
{
	struct world w = { .fd = fd, .take = take };

	if (options.until_end) {
		setsid();
		signal(SIGPIPE, SIG_IGN);
	}
	world_hello(&w);
	out_region = region(&w, 1);
	in_region = region(&w, 2);
	if (options.garbage)
		world_garbage(&w);
	phase(&w, 1);
	if (w.self == 0) {
		printf("node 0: begins\n");
		fflush(stdout);
	}
	int64_t start = clair_now_ns();
	exchange(&w);
	printf("node %u: %u messages, %llu lost, %llu unlanded, %llu dead, in %.2f s\n", w.self,
	       progress(&w), (unsigned long long)lost, (unsigned long long)unlanded,
	       (unsigned long long)w.sents_dead, (double)(clair_now_ns() - start) / 1e9);
	want_dead(&w, options.kill_peer);
	want_dead(&w, options.kill_mount);
	want_dead(&w, options.lost);
	phase(&w, 2);
	if (options.bulk)
		bulk(&w);
	phase(&w, 3);
	if (options.idle)
		idle(&w);
	if (options.until_end)
		return until_end(&w);
	leave(&w);
	if (options.rogue < 0 && options.kill_peer < 0 && options.kill_mount < 0 &&
	    options.lost < 0)
		for (uint32_t i = 0; i < w.count; i++)
			if (w.dead[i] && !w.ended)
				world_fail(&w, "node %u is called dead", i);
	fflush(stdout);
	return 0;
}

static pid_t start_peer(const char *program, int fd)
{
	pid_t pid = fork();

	if (pid == 0) {
		char number[16];
		snprintf(number, sizeof number, "%d", fd);
		execl(program, program, number, (char *)NULL);
		perror(program);
		_exit(127);
	}
	return pid;
}

static void parse(int argc, char **argv)
{
	static const struct option names[] = {
		{ "messages", 1, NULL, 'm' },	{ "garbage", 0, NULL, 'g' },
		{ "bulk", 1, NULL, 'b' },	{ "idle", 1, NULL, 'i' },
		{ "kill-peer", 1, NULL, 'p' },	{ "kill-mount", 1, NULL, 'k' },
		{ "lost", 1, NULL, 'l' },	{ "rogue", 1, NULL, 'r' },
		{ "pace", 1, NULL, 'a' },	{ "until-end", 1, NULL, 'u' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		uint64_t v = optarg ? strtoull(optarg, NULL, 10) : 0;
		switch (c) {
		case 'm': options.messages = (uint32_t)v; break;
		case 'g': options.garbage = true; break;
		case 'b': options.bulk = v; break;
		case 'i': options.idle = (uint32_t)v; break;
		case 'p': options.kill_peer = (int)v; break;
		case 'k': options.kill_mount = (int)v; break;
		case 'l': options.lost = (int)v; break;
		case 'r': options.rogue = (int)v; break;
		case 'a': options.pace = (uint32_t)v; break;
		case 'u': options.until_end = optarg; break;
		default: exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	int pair[2], status = 0, peer_status = 0;

	if (argc < 2 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return 2;
	parse(argc - 1, argv + 1);
	fcntl(pair[1], F_SETFD, 0);
	peer_pid = start_peer(argv[1], pair[1]);
	close(pair[1]);
	pid_t mount = fork();
	if (mount == 0)
		_exit(mount_main(pair[0]));
	close(pair[0]);
	/* As the command would: mpirun's daemon kills the group when this one ends. */
	if (options.until_end)
		signal(SIGTERM, SIG_IGN);
	if (peer_pid < 0 || mount < 0)
		return 2;
	waitpid(mount, &status, 0);
	waitpid(peer_pid, &peer_status, 0);
	bool killed = WIFSIGNALED(status) && options.kill_mount >= 0;
	bool peer_killed = WIFSIGNALED(peer_status) && WTERMSIG(peer_status) == SIGKILL &&
			   options.kill_peer >= 0;
	if ((status && !killed) || (peer_status && !peer_killed)) {
		fprintf(stderr, "FAIL: mount ended with %x, peer with %x\n", status, peer_status);
		return 1;
	}
	return 0;
}
