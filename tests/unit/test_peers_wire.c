/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages between mounts, one at a time: without stages. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "clock.h"
#include "peer_net.h"
#include "peers_internal.h"

#define WAIT_MS 30000
#define SIZE 50000u
#define SHARED (64ull << 20)
/* What nominally takes 0.5 to 1.1 s. */
#define SOON_NS (4 * CLAIR_NS_PER_S)

enum how {
	ANSWER,
	COMING_FIRST,
	ONLY_COMING,
	SILENT,
	ERRNO,
	STALE,
	POSITIVE,
	SHORT,
	OTHER_ID,
	OTHER_PIECE,
	WRONG_HASH,
	TWICE,
};

/* A node whose stage is one buffer. */
struct side {
	struct clair_peers *peers;
	struct clair_stats stats;
	struct clair_pool *pool;
	struct clair_buffer *bytes;
	_Atomic enum how how;
	atomic_uint gets, sent, ends, founds;
	char found[64];
};

static struct net net;
static struct side sides[NET_NODES];

TestSuite(peers_wire, .timeout = 60); /* nothing hangs */

static void count_sent(void *arg)
{
	struct side *s = arg;

	atomic_fetch_add(&s->sent, 1);
}

static void get(void *self, uint16_t node, uint32_t id, uint32_t piece, uint64_t request)
{
	struct side *s = self;
	struct clair_piece p = { .request = request, .id = id, .piece = piece,
				 .region = CLAIR_REGION_BUFFERS, .offset = s->bytes->offset,
				 .length = SIZE, .hash = XXH3_64bits(s->bytes->data, SIZE) };

	atomic_fetch_add(&s->gets, 1);
	switch (s->how) {
	case SILENT:
		return;
	case ONLY_COMING:
		clair_peers_coming(s->peers, node, request);
		return;
	case COMING_FIRST:
		clair_peers_coming(s->peers, node, request);
		break;
	case ERRNO:
		p.status = -ENXIO;
		break;
	case STALE:
		p.status = -ESTALE;
		break;
	case POSITIVE:
		p.status = 7;
		break;
	case SHORT:
		p.length = SIZE / 2;
		break;
	case OTHER_ID:
		p.id++;
		break;
	case OTHER_PIECE:
		p.piece++;
		break;
	case WRONG_HASH:
		p.hash++;
		break;
	case TWICE:
		clair_peers_answer(s->peers, node, &p, count_sent, s);
		break;
	case ANSWER:
		break;
	}
	clair_peers_answer(s->peers, node, &p, count_sent, s);
}

static void end(void *self)
{
	struct side *s = self;

	atomic_fetch_add(&s->ends, 1);
}

static void found(void *self, uint32_t folder, const char *text)
{
	struct side *s = self;

	snprintf(s->found, sizeof s->found, "%u %s", folder, text);
	atomic_fetch_add(&s->founds, 1);
}

static char *status(void *self)
{
	char *text = NULL;

	if (asprintf(&text, "{\"number\": %d}", (int)((struct side *)self - sides)) < 0)
		return NULL;
	return text;
}

static void begin(unsigned count)
{
	struct clair_stats *stats[NET_NODES] = { NULL };
	uint32_t node, nodes;

	memset(sides, 0, sizeof sides);
	for (unsigned i = 0; i < count; i++)
		stats[i] = &sides[i].stats;
	net_begin(&net, count, stats);
	for (unsigned i = 0; i < count; i++) {
		struct side *s = &sides[i];
		s->peers = net.nodes[i].peers;
		cr_assert_eq(clair_peers_hello(s->peers, WAIT_MS, &node, &nodes), 0);
		cr_assert_eq(node, i);
		cr_assert_eq(nodes, count);
		s->pool = clair_pool_new(8 << 20);
		int fd = clair_pool_share(s->pool, SHARED);
		cr_assert_geq(fd, 0);
		cr_assert_eq(clair_peers_share(s->peers, CLAIR_REGION_BUFFERS, fd, SHARED), 0);
		clair_peers_begin(s->peers, NULL, s->pool);
		s->bytes = clair_buffer_get(s->pool, SIZE);
		for (size_t k = 0; k < SIZE; k++)
			s->bytes->data[k] = (unsigned char)(k * 7 + i);
	}
}

static void serve(unsigned i, enum how how)
{
	struct clair_peers_server server = { &sides[i], get, end, found, status };

	sides[i].how = how;
	clair_peers_set_server(sides[i].peers, &server);
}

static void finish(void)
{
	for (unsigned i = 0; i < net.count; i++) {
		clair_peers_leave(sides[i].peers);
		clair_buffer_put(sides[i].pool, sides[i].bytes);
		clair_pool_free(sides[i].pool);
	}
	net_end(&net);
}

/* Node 0 asks node 1. */
static int fetch(struct clair_buffer **out, int64_t *took)
{
	uint64_t hash = 0;
	int64_t begun = clair_now_ns();

	*out = NULL;
	int r = clair_peers_fetch(sides[0].peers, 1, 5, 2, SIZE, out, &hash);
	*took = clair_now_ns() - begun;
	if (r == 0) {
		cr_expect_eq(hash, XXH3_64bits(sides[1].bytes->data, SIZE));
		cr_expect_arr_eq((*out)->data, sides[1].bytes->data, SIZE);
		clair_buffer_put(sides[0].pool, *out);
	} else {
		cr_expect_null(*out);
	}
	return r;
}

static void expect(enum how how, int result)
{
	struct clair_buffer *out;
	int64_t took;

	begin(2);
	serve(1, how);
	int r = fetch(&out, &took);
	cr_expect_eq(r, result, "case %d: %d", how, r);
	/* The next one is as if nothing had been. */
	if (how != SILENT) {
		sides[1].how = ANSWER;
		cr_expect_eq(fetch(&out, &took), 0);
	}
	finish();
}

Test(peers_wire, answers)
{
	expect(ANSWER, 0);
	expect(COMING_FIRST, 0);
	expect(TWICE, 0);
}

Test(peers_wire, refusals)
{
	expect(ERRNO, -ENXIO);
	expect(STALE, -ESTALE);
}

Test(peers_wire, nonsense)
{
	expect(POSITIVE, -EPROTO);
	expect(SHORT, -EPROTO);
	expect(OTHER_ID, -EPROTO);
	expect(OTHER_PIECE, -EPROTO);
	expect(WRONG_HASH, -EBADMSG);
}

/* Every answer is told to be sent, once, whatever becomes of it. */
Test(peers_wire, every_answer_is_sent)
{
	struct clair_buffer *out;
	int64_t took, until = clair_now_ns() + WAIT_MS * CLAIR_NS_PER_MS;

	begin(2);
	serve(1, TWICE);
	for (int i = 0; i < 20; i++)
		cr_expect_eq(fetch(&out, &took), 0);
	while (sides[1].sent < 40 && clair_now_ns() < until)
		usleep(1000);
	cr_expect_eq(sides[1].sent, 40);
	sides[1].how = ERRNO;
	cr_expect_eq(fetch(&out, &took), -ENXIO);
	while (sides[1].sent < 41 && clair_now_ns() < until)
		usleep(1000);
	finish();
	cr_expect_eq(sides[1].sent, 41);
}

/* Nothing is heard: it is given up soon, and the node is left alone for a while. */
Test(peers_wire, silence)
{
	struct clair_buffer *out;
	int64_t took;

	begin(2);
	serve(1, SILENT);
	cr_expect_eq(fetch(&out, &took), -ETIMEDOUT);
	cr_expect_lt(took, SOON_NS);
	unsigned gets = sides[1].gets;
	cr_expect_eq(fetch(&out, &took), -EHOSTDOWN);
	cr_expect_eq(sides[1].gets, gets, "it was asked though it is slow");
	finish();
}

struct asking {
	atomic_int result;
	int64_t took;
};

static void *ask(void *arg)
{
	struct asking *a = arg;
	struct clair_buffer *out;

	a->result = fetch(&out, &a->took);
	return NULL;
}

/* A request is lost while others are answered: that is seen long before patience ends. */
Test(peers_wire, overtaken)
{
	struct asking lost = { 1, 0 };
	struct clair_buffer *out;
	pthread_t thread;
	int64_t took;

	begin(2);
	serve(1, SILENT);
	pthread_create(&thread, NULL, ask, &lost);
	while (!sides[1].gets)
		usleep(1000);
	sides[1].how = ANSWER;
	while (lost.result == 1) {
		cr_expect_eq(fetch(&out, &took), 0);
		usleep(10000);
	}
	pthread_join(thread, NULL);
	cr_expect_eq(lost.result, -ETIMEDOUT);
	cr_expect_lt(lost.took, SOON_NS);
	finish();
}

static void fails_soon(void (*happens)(void), enum how how, int result)
{
	struct asking a = { 1, 0 };
	pthread_t thread;

	begin(3);
	serve(1, how);
	pthread_create(&thread, NULL, ask, &a);
	while (!sides[1].gets)
		usleep(1000);
	happens();
	pthread_join(thread, NULL);
	cr_expect_eq(a.result, result, "%d", a.result);
	cr_expect_lt(a.took, SOON_NS);
	finish();
}

static void dies(void)
{
	net_kill(&net, 1);
}

static void is_cut_off(void)
{
	net_kill(&net, 0);
}

static void leaves(void)
{
	clair_peers_leave(sides[0].peers);
}

Test(peers_wire, holder_dies)
{
	fails_soon(dies, SILENT, -EHOSTDOWN);
	fails_soon(dies, ONLY_COMING, -EHOSTDOWN);
}

Test(peers_wire, own_link_closes)
{
	fails_soon(is_cut_off, SILENT, -EHOSTDOWN);
	fails_soon(is_cut_off, ONLY_COMING, -EHOSTDOWN);
}

Test(peers_wire, asker_leaves)
{
	fails_soon(leaves, ONLY_COMING, -EHOSTDOWN);
}

/* What is asked before the other one serves waits for it; who never serves says so. */
Test(peers_wire, early_get)
{
	struct asking a = { 1, 0 };
	struct clair_buffer *out;
	pthread_t thread;
	int64_t took;

	begin(2);
	pthread_create(&thread, NULL, ask, &a);
	while (!net_sent(&net, P_COMING))
		usleep(1000);
	cr_expect_eq(a.result, 1);
	serve(1, ANSWER);
	pthread_join(thread, NULL);
	cr_expect_eq(a.result, 0);
	clair_peers_leave(sides[1].peers);
	cr_expect_eq(fetch(&out, &took), -EHOSTDOWN);
	cr_expect_lt(took, SOON_NS);
	finish();
}

/* The message is cut, its payload lies there all the same: the room comes back. */
Test(peers_wire, room_of_a_cut_message)
{
	struct clair_buffer *out;
	int64_t took;

	begin(2);
	serve(1, ANSWER);
	net_set_faults(&net, &(struct net_faults){ .truncate = 1000, .kinds = 1 << P_DATA });
	cr_expect_eq(fetch(&out, &took), -ETIMEDOUT);
	net_set_faults(&net, &(struct net_faults){ 0 });
	pthread_mutex_lock(&sides[0].peers->lock);
	for (uint32_t i = 0; i < SLOTS; i++)
		cr_expect_eq(sides[0].peers->requests[i].state, R_FREE);
	pthread_mutex_unlock(&sides[0].peers->lock);
	cr_expect_eq(sides[0].stats.error_peer, 1);
	finish();
}

/* More at once than a node is asked: they wait for each other. */
Test(peers_wire, many_at_once)
{
	struct asking all[150];
	pthread_t threads[150];

	begin(2);
	serve(1, COMING_FIRST);
	net_set_faults(&net, &(struct net_faults){ .delay_us = 2000, .duplicate = 200 });
	for (int i = 0; i < 150; i++) {
		all[i].result = 1;
		pthread_create(&threads[i], NULL, ask, &all[i]);
	}
	for (int i = 0; i < 150; i++) {
		pthread_join(threads[i], NULL);
		cr_expect_eq(all[i].result, 0);
	}
	finish();
}

/* --- beginning ----------------------------------------------------------------------------- */

struct agreeing {
	struct clair_peers *peers;
	struct clair_peer_info info;
	int timeout_ms, result;
};

static void *agree_one(void *arg)
{
	struct agreeing *a = arg;

	a->result = clair_peers_agree(a->peers, &a->info, a->timeout_ms);
	return NULL;
}

static struct agreeing agreeings[NET_NODES];

static void set_infos(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct agreeing *a = &agreeings[i];
		*a = (struct agreeing){ .peers = sides[i].peers, .timeout_ms = WAIT_MS };
		a->info.catalog = 17;
		a->info.ram = 100 * (i + 1);
		snprintf(a->info.host, sizeof a->info.host, "host%u", i);
		strcpy(a->info.order, "seed=1");
		a->info.rank_count = CLAIR_PEER_RANKS;
		for (uint32_t k = 0; k < CLAIR_PEER_RANKS; k++)
			a->info.ranks[k] = k * 8 + i;
	}
}

static void agree_all(unsigned count, int silent)
{
	pthread_t threads[NET_NODES];

	for (unsigned i = 0; i < count; i++)
		if ((int)i != silent)
			pthread_create(&threads[i], NULL, agree_one, &agreeings[i]);
	for (unsigned i = 0; i < count; i++)
		if ((int)i != silent)
			pthread_join(threads[i], NULL);
}

/* What node I knows of J: all of it, or nothing when it is left out. */
static void check_info(unsigned i, unsigned j, bool there)
{
	const struct clair_peer_info *info = clair_peers_info(sides[i].peers, j);

	if (!there) {
		cr_expect_null(info, "%u of %u", i, j);
		return;
	}
	cr_assert_not_null(info, "%u of %u", i, j);
	cr_expect_eq(memcmp(info, &agreeings[j].info, sizeof *info), 0);
}

Test(peers_wire, all_agree)
{
	begin(4);
	set_infos(4);
	agree_all(4, -1);
	for (unsigned i = 0; i < 4; i++) {
		cr_expect_eq(agreeings[i].result, 0);
		for (unsigned j = 0; j < 4; j++)
			check_info(i, j, true);
		cr_expect_eq(clair_peers_capacity(sides[i].peers), 1000);
	}
	finish();
}

static void one_differs(void (*change)(struct clair_peer_info *info))
{
	struct clair_buffer *out;
	int64_t took;

	begin(4);
	set_infos(4);
	change(&agreeings[1].info);
	agree_all(4, -1);
	for (unsigned i = 0; i < 4; i++) {
		cr_expect_eq(agreeings[i].result, i == 1 ? -EPIPE : 0, "%u: %d", i,
			     agreeings[i].result);
		for (unsigned j = 0; j < 4; j++)
			check_info(i, j, i == j || (i != 1 && j != 1));
	}
	/* Nobody asks it, and it refuses. */
	cr_expect_eq(fetch(&out, &took), -EHOSTDOWN);
	finish();
}

static void other_catalog(struct clair_peer_info *info)
{
	info->catalog++;
}

static void other_order(struct clair_peer_info *info)
{
	strcpy(info->order, "seed=2");
}

Test(peers_wire, another_catalog)
{
	one_differs(other_catalog);
}

Test(peers_wire, other_settings)
{
	one_differs(other_order);
}

static void one_is_silent(unsigned silent, bool dead)
{
	begin(4);
	set_infos(4);
	for (unsigned i = 0; i < 4; i++)
		agreeings[i].timeout_ms = dead ? WAIT_MS : 3000;
	if (dead)
		net_kill(&net, silent);
	agree_all(4, (int)silent);
	for (unsigned i = 0; i < 4; i++) {
		if (i == silent)
			continue;
		cr_expect_eq(agreeings[i].result, 0);
		for (unsigned j = 0; j < 4; j++)
			check_info(i, j, j != silent);
	}
	finish();
}

Test(peers_wire, silent_at_agree)
{
	one_is_silent(2, false);
}

Test(peers_wire, dead_at_agree)
{
	one_is_silent(0, true);
}

static int memfd(const char *text)
{
	int fd = memfd_create("bulk", MFD_CLOEXEC);

	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	return fd;
}

Test(peers_wire, bulk)
{
	char text[16] = "";
	uint64_t size;
	int fd;

	begin(3);
	int sent = memfd("the catalog");
	cr_expect_eq(clair_peers_send_bulk(sides[0].peers, sent, 11), 0);
	close(sent);
	for (unsigned i = 1; i < 3; i++) {
		cr_assert_eq(clair_peers_wait_bulk(sides[i].peers, &fd, &size), 0);
		cr_expect_eq(size, 11);
		cr_expect_eq(pread(fd, text, size, 0), 11);
		cr_expect_str_eq(text, "the catalog");
		close(fd);
	}
	net_kill(&net, 0);
	cr_expect_eq(clair_peers_wait_bulk(sides[1].peers, &fd, &size), -EPIPE);
	finish();
}

/* --- what nodes tell each other -------------------------------------------------------------- */

static bool await(atomic_uint *value, unsigned wanted)
{
	int64_t until = clair_now_ns() + WAIT_MS * CLAIR_NS_PER_MS;

	while (*value != wanted && clair_now_ns() < until)
		usleep(1000);
	return *value == wanted;
}

Test(peers_wire, gather)
{
	begin(3);
	serve(1, ANSWER);
	json_t *list = clair_peers_gather(sides[0].peers, 200); /* node 2 has no server yet */
	cr_expect_eq(json_array_size(list), 3);
	cr_expect(json_is_null(json_array_get(list, 0)));
	cr_expect_eq(json_integer_value(json_object_get(json_array_get(list, 1), "number")), 1);
	cr_expect(json_is_null(json_array_get(list, 2)));
	json_decref(list);
	serve(2, ANSWER);
	net_kill(&net, 1);
	list = clair_peers_gather(sides[0].peers, WAIT_MS);
	cr_expect(json_is_null(json_array_get(list, 1)));
	cr_expect_eq(json_integer_value(json_object_get(json_array_get(list, 2), "number")), 2);
	json_decref(list);
	finish();
}

Test(peers_wire, done_found_bye)
{
	int64_t until = clair_now_ns() + WAIT_MS * CLAIR_NS_PER_MS;

	begin(3);
	for (unsigned i = 0; i < 3; i++)
		serve(i, ANSWER);
	clair_peers_tell_found(sides[2].peers, 9, "sampler=x,seed=3");
	for (unsigned i = 0; i < 2; i++) {
		cr_expect(await(&sides[i].founds, 1));
		cr_expect_str_eq(sides[i].found, "9 sampler=x,seed=3");
	}
	cr_expect_not(clair_peers_done(sides[0].peers));
	cr_expect_not(clair_peers_done(sides[1].peers));
	net_kill(&net, 2); /* who is gone is not waited for */
	while (!clair_peers_done(sides[0].peers) && clair_now_ns() < until)
		usleep(1000);
	cr_expect(clair_peers_done(sides[0].peers));
	clair_peers_bye(sides[1].peers);
	clair_peers_bye(sides[1].peers);
	cr_expect(await(&sides[0].ends, 1));
	cr_expect_eq(sides[1].ends, 0);
	finish();
}
