/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "clock.h"
#include "peer_internal.h"
#include "peer_launcher.h"

/* clairfs-peer FD: the MPI rank of a node. Moves frames between the socket FD (to the mount
 * process, link.h) and the other nodes. It never returns an error to a mount: what cannot be
 * sent is SENT with DEAD, and its own end is the end of the socket. */

#define US 1000LL
#define SPIN (100 * US)               /* awake after the last activity */
#define PING (250 * CLAIR_NS_PER_MS)  /* between questions whether a node lives */
#define SILENCE (1900 * CLAIR_NS_PER_MS)
#define UNANSWERED 8                  /* questions, at least, before a node is dead */
#define UNANSWERED_IDLE 24            /* when nothing is outstanding of it: no hurry */
#define INTEREST (3 * CLAIR_NS_PER_S) /* a node is watched after the last message */
#define REST (5 * CLAIR_NS_PER_S)     /* after that it is only looked after */
#define GIVE_UP (20 * CLAIR_NS_PER_S)    /* a silent node is dead after that */
#define STANDSTILL (30 * CLAIR_NS_PER_S) /* it answers, but its MPI does not move */
#define FINALIZE_S 2
#define START_S 120 /* a node that died before would let MPI wait for ever */

static volatile sig_atomic_t told_to_end;

static void on_end(int sig)
{
	(void)sig;
	told_to_end = 1;
}

static void on_alarm(int sig)
{
	(void)sig;
	_exit(0); /* somebody does not come to the end: MPI would wait for ever */
}

static void on_late_start(int sig)
{
	static const char line[] = "clairfs-peer: MPI does not come up; going on without peers\n";

	(void)sig;
	(void)!write(2, line, sizeof line - 1);
	_exit(1);
}

void peer_due(struct peer *p, int64_t at)
{
	if (at < p->due)
		p->due = at;
}

void peer_garbage(struct peer *p, const struct peer_node *n, const char *what)
{
	if (p->garbage_told)
		return;
	p->garbage_told = true;
	fprintf(stderr, "clairfs-peer: node %d sent garbage (%s); dropped, as all that follows\n",
		n ? (int)n->id : -1, what);
}

void peer_doom(struct peer *p, struct peer_node *n, const char *why)
{
	if (n->doomed || n->dead)
		return;
	n->doomed = true;
	peer_due(p, p->now);
	fprintf(stderr, "clairfs-peer: node %u is given up: %s\n", n->id, why);
}

void peer_leave(struct peer *p, int64_t ns)
{
	if (p->ending && p->end_at <= p->now + ns)
		return;
	p->ending = true;
	p->end_at = p->now + ns;
	peer_due(p, p->now);
}

void peer_ended(struct peer *p)
{
	if (!p->ending)
		peer_tell(p, (struct clair_link_frame){ .kind = CLAIR_LINK_END }, NULL, -1);
	peer_leave(p, 100 * CLAIR_NS_PER_MS);
}

void peer_node_down(struct peer *p, struct peer_node *n)
{
	if (n->down)
		return;
	n->down = true;
	peer_tell(p,
		  (struct clair_link_frame){ .kind = CLAIR_LINK_STATE,
					     .flags = CLAIR_LINK_DEAD,
					     .node = n->id },
		  NULL, -1);
	peer_sends_end(p, n);
	peer_bulk_node_down(p, n);
}

static void bury(struct peer *p, struct peer_node *n)
{
	n->dead = true;
	n->doomed = false;
	peer_ops_abandon(p, n);
	peer_receives_end(p, n);
	peer_node_down(p, n);
	peer_sends_end(p, n);
	n->charged = n->acked;
	n->ack_at = n->ring_at = 0;
	n->asked = false;
}

static bool outstanding(const struct peer_node *n)
{
	return n->charged != n->acked || n->queue.first || n->bulk.first || n->batches ||
	       n->sends || n->bulk_sends || n->in ||
	       n->batches_rung > n->batches_received;
}

/* How long a silent node may be alive. Where its doorbell cannot be reached the question
 * waits behind what is on its way to it: at 1 MB/s then. */
static int64_t patience(const struct peer_node *n)
{
	return n->reachable ? SILENCE
			    : SILENCE + (int64_t)(n->charged - n->acked) * 1000 +
				      2 * CLAIR_NS_PER_S;
}

static void ask(struct peer *p, struct peer_node *n)
{
	if (n->reachable || n->verify_tries < 4)
		peer_ring(p, n, true);
	else
		peer_send_empty(p, n, true);
	if (!n->unanswered++)
		n->first_ask = p->now;
}

/* Between questions to a node that nobody talks to: at most 50 a second to all. */
static int64_t rest(const struct peer *p)
{
	int64_t ns = p->count * 20 * CLAIR_NS_PER_MS;

	return ns > REST ? ns : REST;
}

static void tell_silent(struct peer *p, const struct peer_node *n)
{
	peer_tell(p,
		  (struct clair_link_frame){ .kind = CLAIR_LINK_STATE,
					     .flags = n->silent_since ? CLAIR_LINK_SILENT : 0,
					     .node = n->id },
		  NULL, -1);
}

/* N was not heard for too long: stopped, overloaded, or its link is down. What is under way stays
 * so, since MPI goes on where it was when the node is back. */
static void no_answer(struct peer *p, struct peer_node *n)
{
	if (!n->silent_since) {
		n->silent_since = p->now;
		if (!n->down)
			tell_silent(p, n);
	} else if (p->now - n->silent_since > GIVE_UP) {
		peer_doom(p, n, "no answer");
	}
}

/* TCP's own pauses have grown with the silence: it may take as long again. */
static void answers_again(struct peer *p, struct peer_node *n)
{
	n->moved = p->now + (p->now - n->silent_since);
	n->silent_since = 0;
	if (!n->down)
		tell_silent(p, n);
}

/* Asks a node that something is outstanding of, faster at first, since what was rung may
 * have been lost. */
static void watch(struct peer *p, struct peer_node *n)
{
	bool busy = outstanding(n) || peer_bulk_waits_for(p, n);

	if (n->silent_since && n->heard > n->silent_since)
		answers_again(p, n);
	if (!outstanding(n) || n->silent_since)
		n->moved = p->now > n->moved ? p->now : n->moved;
	if (!busy && p->now - n->used > INTEREST && !n->unanswered && !n->silent_since) {
		int64_t next = n->heard + rest(p);
		n->asks = 0;
		if (p->now < next) {
			n->ask_at = 0;
			peer_due(p, next);
			return;
		}
	}
	if (p->now - n->moved > STANDSTILL) {
		peer_doom(p, n, "its MPI stands still");
		return;
	}
	int64_t gap = n->asks < 6 && busy ? (5 * CLAIR_NS_PER_MS) << n->asks : PING;
	if (!n->ask_at)
		n->ask_at = p->now + gap;
	if (p->now >= n->ask_at) {
		if (n->unanswered >= (busy ? UNANSWERED : UNANSWERED_IDLE) &&
		    p->now - n->first_ask > patience(n)) {
			no_answer(p, n);
			if (n->doomed)
				return;
		}
		if (n->heard > n->ask_at - gap && !busy)
			n->unanswered = 0;
		else
			ask(p, n);
		n->asks++;
		n->ask_at = p->now + gap;
	}
	peer_due(p, n->ask_at);
}

/* At start, until the doorbell of N has answered. */
static void verify(struct peer *p, struct peer_node *n)
{
	if (n->reachable || n->verify_tries > 60 || p->bell < 0)
		return;
	int64_t gap = n->verify_tries < 40 ? 50 * CLAIR_NS_PER_MS : 5 * CLAIR_NS_PER_S;
	if (p->now - n->rung_at >= gap) {
		n->verify_tries++;
		peer_ring(p, n, true);
	}
	peer_due(p, n->rung_at + gap);
}

static void tick_node(struct peer *p, struct peer_node *n)
{
	if (n->doomed)
		bury(p, n);
	if (n->dead)
		return;
	peer_deliver(p, n);
	peer_pump(p, n);
	if (n->asked || (n->ack_at && p->now >= n->ack_at && n->taken != n->reported))
		peer_send_empty(p, n, false);
	else if (n->ack_at)
		peer_due(p, n->ack_at < p->now ? p->now + CLAIR_NS_PER_MS : n->ack_at);
	if (n->ring_at && p->now >= n->ring_at)
		peer_ring(p, n, false);
	else if (n->ring_at)
		peer_due(p, n->ring_at);
	verify(p, n);
	watch(p, n);
	if (n->doomed)
		bury(p, n);
}

static void tick(struct peer *p)
{
	bool alone = true;

	p->due = INT64_MAX;
	for (uint32_t i = 0; i < p->count; i++) {
		if (i == p->self)
			continue;
		tick_node(p, &p->nodes[i]);
		alone = alone && (p->nodes[i].down || p->nodes[i].silent_since);
	}
	if (p->gone) {
		if (!p->op_count)
			peer_regions_forget(p);
		if (alone && p->count > 1)
			peer_leave(p, 200 * CLAIR_NS_PER_MS);
		else if (p->count == 1)
			peer_leave(p, 0);
	}
}

static bool flushed(const struct peer *p)
{
	for (uint32_t i = 0; i < p->count; i++) {
		const struct peer_node *n = &p->nodes[i];
		if (i != p->self && !n->dead &&
		    (n->charged != n->acked || n->queue.first || n->batches || n->sends ||
		     n->taken != n->reported))
			return false;
	}
	return true;
}

/* How long to sleep, ns. Awake for SPIN after the last activity; then in steps, as long as
 * MPI has something under way; else until the doorbell. */
static int64_t nap(const struct peer *p)
{
	int64_t quiet = p->now - p->active, ns;
	bool expecting = p->op_count > 0;

	for (uint32_t i = 0; i < p->count && !expecting; i++)
		expecting = !p->nodes[i].dead &&
			    (p->nodes[i].unposted ||
			     p->nodes[i].batches_rung > p->nodes[i].batches_received);
	if (quiet < SPIN)
		return 0;
	if (expecting)
		ns = quiet < CLAIR_NS_PER_MS	    ? 50 * US
		     : quiet < 5 * CLAIR_NS_PER_MS  ? 100 * US
		     : quiet < 50 * CLAIR_NS_PER_MS ? 250 * US
		     : quiet < CLAIR_NS_PER_S	    ? 500 * US
						    : CLAIR_NS_PER_MS;
	else
		ns = peer_bell_trusted(p) ? 100 * CLAIR_NS_PER_MS : CLAIR_NS_PER_MS;
	if (p->due - p->now < ns)
		ns = p->due - p->now;
	return ns < 0 ? 0 : ns;
}

static void take_signal(struct peer *p)
{
	if (told_to_end != 1)
		return;
	told_to_end = 2;
	/* The death of mpirun costs the mount its peers, not its life. */
	if (clair_launcher_lives())
		peer_tell(p, (struct clair_link_frame){ .kind = CLAIR_LINK_END }, NULL, -1);
	for (uint32_t i = 0; i < p->count; i++)
		if (i != p->self && !p->nodes[i].dead)
			peer_enqueue(p, &p->nodes[i], peer_item_new(PEER_DOWN, NULL, 0));
	peer_leave(p, 200 * CLAIR_NS_PER_MS);
}

static void turn(struct peer *p, const sigset_t *open)
{
	struct pollfd fds[2] = { { .fd = p->gone ? -1 : p->fd, .events = POLLIN },
				 { .fd = p->bell, .events = POLLIN } };
	if (p->full)
		fds[0].events |= POLLOUT;
	int64_t ns = nap(p);
	struct timespec t = { ns / CLAIR_NS_PER_S, ns % CLAIR_NS_PER_S };
	int ready = ppoll(fds, 2, &t, open);

	p->now = clair_now_ns();
	take_signal(p);
	if (ready > 0 && fds[1].revents)
		peer_bell_read(p);
	if (ready > 0 && fds[0].revents & (POLLIN | POLLHUP | POLLERR))
		peer_mount_read(p);
	peer_receive(p);
	if (peer_ops_test(p))
		p->active = p->now;
	if (p->now >= p->due)
		tick(p);
	if (p->out) {
		bool held = p->out_bytes >= PEER_HELD;
		peer_mount_flush(p);
		if (held && p->out_bytes < PEER_HELD)
			peer_due(p, p->now);
	}
}

static int meet(struct peer *p)
{
	int rank = 0, count = 0;

	if (MPI_Comm_dup(MPI_COMM_WORLD, &p->comm) != MPI_SUCCESS)
		return -EIO;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(p->comm, MPI_ERRORS_RETURN);
	MPI_Comm_rank(p->comm, &rank);
	MPI_Comm_size(p->comm, &count);
	p->self = (uint32_t)rank;
	p->count = (uint32_t)count;
	p->nodes = calloc(p->count, sizeof *p->nodes);
	p->cards = calloc(p->count, sizeof *p->cards);
	p->landings = calloc(PEER_LANDING_BUCKETS, sizeof *p->landings);
	if (!p->nodes || !p->cards || !p->landings)
		return -ENOMEM;
	if (MPI_Allgather(&p->card, sizeof p->card, MPI_BYTE, p->cards, sizeof p->card,
			  MPI_BYTE, p->comm) != MPI_SUCCESS)
		return -EIO;
	for (uint32_t i = 0; i < p->count; i++) {
		struct peer_node *n = &p->nodes[i];
		n->id = i;
		n->queue.last = &n->queue.first;
		n->bulk.last = &n->bulk.first;
		n->heads_last = &n->heads;
		n->in_last = &n->in;
		n->moved = n->heard = p->now;
	}
	return 0;
}

static void finish(struct peer *p)
{
	struct itimerval limit = { .it_value.tv_sec = told_to_end ? 0 : FINALIZE_S,
				   .it_value.tv_usec = told_to_end ? 500000 : 0 };

	for (int i = 0; i < 100 && p->out && !p->gone; i++) {
		struct pollfd fd = { .fd = p->fd, .events = POLLOUT };
		poll(&fd, 1, 2);
		peer_mount_flush(p);
	}
	setitimer(ITIMER_REAL, &limit, NULL);
	MPI_Finalize();
	_exit(0);
}

int main(int argc, char **argv)
{
	static struct peer peer = { .bell = -1 };
	struct peer *p = &peer;
	struct sigaction end = { .sa_handler = on_end }, late = { .sa_handler = on_alarm };
	sigset_t ends, open;
	char *rest = NULL;

	if (argc != 2 || (p->fd = (int)strtol(argv[1], &rest, 10)) < 0 || *rest) {
		fprintf(stderr, "clairfs-peer is started by clairfs, not by hand\n");
		return 2;
	}
	p->out_last = &p->out;
	/* We sleep ourselves; where the cores are busy every yield costs a round of all others. */
	setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
	prctl(PR_SET_TIMERSLACK, 1000UL);
	signal(SIGALRM, on_late_start);
	alarm(START_S);
	int provided;
	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
		return 1;
	if (peer_bell_open(p) < 0)
		fprintf(stderr, "clairfs-peer: no doorbell (%m); MPI is asked every millisecond\n");
	p->now = clair_now_ns();
	if (meet(p) < 0) {
		fprintf(stderr, "clairfs-peer: MPI does not bring the nodes together\n");
		_exit(1);
	}
	alarm(0);
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, &open);
	sigdelset(&open, SIGTERM);
	sigdelset(&open, SIGINT);
	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGINT, &end, NULL);
	sigaction(SIGALRM, &late, NULL);
	signal(SIGPIPE, SIG_IGN);
	p->now = clair_now_ns();
	peer_tell(p,
		  (struct clair_link_frame){ .kind = CLAIR_LINK_HELLO,
					     .node = p->self,
					     .token = p->count },
		  NULL, -1);
	while (!p->ending || (p->now < p->end_at && !flushed(p)))
		turn(p, &open);
	finish(p);
}
