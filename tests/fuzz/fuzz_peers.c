/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_peers [SEED [SECONDS]]: frames that no peer process or node would send, between those
 * that they would, in all states of requests. One thread, the same for the same seed (but for
 * how far it comes). Ends in 1 when descriptors or bytes are lost; sanitizers see the rest. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"
#include "clock.h"
#include "log.h"
#include "peers_internal.h"

#define NODES 4u
#define ROUND 400u /* fetches with the same peers */
#define SIZE 5000u
#define SHARED (256ull << 20)

static struct clair_peers *peers;
static struct clair_stats stats;
static struct clair_pool *pool;
static struct clair_buffer *kept;
static uint64_t state;
static uint64_t key, token; /* of the last request, of the last answer */
static struct peer_message asked;
static uint32_t asked_node;
static uint64_t frames, right, held;
static unsigned depth;

static uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % below;
}

static uint64_t odd_number(void)
{
	static const uint64_t some[] = { 0, 1, 2, NODES, SLOTS - 1, SLOTS, UINT32_MAX, INT32_MAX,
					 UINT64_MAX, 1ull << 63, CLAIR_LINK_PAYLOAD, SIZE };

	switch (draw(4)) {
	case 0: return key;
	case 1: return token;
	case 2: return some[draw(sizeof some / sizeof some[0])];
	default: return (uint64_t)draw(UINT32_MAX) << draw(32);
	}
}

/* --- frames ---------------------------------------------------------------------------------- */

static void bring(struct clair_link_frame *f, const void *small, int fd)
{
	/* Of the exact size: what is read beyond it is seen. */
	unsigned char *copy = malloc(f->small ? f->small : 1);

	if (!copy)
		abort();
	if (f->small)
		memcpy(copy, small, f->small);
	frames++;
	clair_peers_frame(peers, f, copy, fd);
	free(copy);
}

static void draw_message(struct peer_message *m)
{
	*m = asked;
	m->version = MESSAGE_VERSION;
	m->kind = (uint16_t)(P_INFO + draw(P_DONE));
	if (m->kind == P_DATA || draw(2))
		m->kind = P_DATA;
	m->status = draw(2) ? 0 : -(int)draw(200);
	m->length = SIZE;
	if (draw(2))
		m->hash = XXH3_64bits(kept->data, SIZE);
	for (unsigned n = draw(4); n-- > 0;) {
		uint64_t odd = odd_number();
		size_t size = 1u << draw(4), at = draw(sizeof *m / (uint32_t)size) * size;
		memcpy((unsigned char *)m + at, &odd, size);
	}
}

static void draw_frame(void)
{
	static const uint16_t kinds[] = { CLAIR_LINK_MESSAGE, CLAIR_LINK_MESSAGE,
					  CLAIR_LINK_MESSAGE, CLAIR_LINK_SENT,
					  CLAIR_LINK_UNLANDED, CLAIR_LINK_HELLO,
					  CLAIR_LINK_BULKED, CLAIR_LINK_END };
	unsigned char small[CLAIR_LINK_SMALL];
	struct peer_message m;
	struct clair_link_frame f = { .version = CLAIR_LINK_VERSION,
				      .kind = kinds[draw(8)],
				      .node = draw(8) ? asked_node : draw(NODES + 2),
				      .key = key,
				      .token = token };
	int fd = draw(16) ? -1 : memfd_create("fuzz", MFD_CLOEXEC);

	for (size_t i = 0; i < sizeof small; i += 256)
		memset(small + i, (int)draw(256), 256);
	draw_message(&m);
	memcpy(small, &m, sizeof m);
	f.small = draw(8) ? sizeof m : draw(4) ? draw(2 * sizeof m) : draw(CLAIR_LINK_SMALL + 1);
	f.length = f.kind == CLAIR_LINK_MESSAGE && draw(2) ? SIZE : 0;
	f.flags = draw(4) ? 0 : draw(4);
	if (draw(8) == 0)
		f.kind = (uint16_t)draw(90);
	if (draw(200) == 0)
		f.kind = CLAIR_LINK_STATE;
	if (draw(100) == 0)
		f.version = (uint16_t)odd_number();
	if (draw(8) == 0)
		f.key = odd_number();
	if (draw(8) == 0)
		f.token = odd_number();
	if (draw(16) == 0)
		f.node = (uint32_t)odd_number();
	if (draw(16) == 0)
		f.length = odd_number();
	bring(&f, small, fd);
}

/* --- the other side ---------------------------------------------------------------------------- */

/* The last request is answered for good, so that nobody waits. */
static void settle(void)
{
	struct peer_message m = asked;
	struct clair_link_frame f = { .version = CLAIR_LINK_VERSION,
				      .kind = CLAIR_LINK_MESSAGE,
				      .node = asked_node,
				      .small = sizeof m };

	m.kind = P_DATA;
	m.version = MESSAGE_VERSION;
	m.status = -EIO;
	bring(&f, &m, -1);
}

static int transport(void *self, const struct clair_link_frame *f, const void *small, int fd)
{
	(void)self;
	(void)fd;
	if (f->kind == CLAIR_LINK_LAND)
		key = f->key;
	if (f->kind == CLAIR_LINK_SEND && f->token)
		token = f->token;
	if (depth) /* what a frame of ours led to */
		return draw(50) ? 0 : -EPIPE;
	depth++;
	if (f->kind == CLAIR_LINK_UNLAND && draw(8)) {
		struct clair_link_frame u = { .version = CLAIR_LINK_VERSION,
					      .kind = CLAIR_LINK_UNLANDED, .key = f->key };
		bring(&u, NULL, -1);
	} else if (f->kind == CLAIR_LINK_SEND && f->small >= sizeof asked) {
		memcpy(&asked, small, sizeof asked);
		asked_node = f->node;
		for (unsigned n = draw(12); n-- > 0;)
			draw_frame();
		if (asked.kind == P_GET)
			settle();
	}
	depth--;
	return draw(100) ? 0 : -ENOBUFS;
}

static void sent(void *arg)
{
	(void)arg;
	held--;
}

static void get(void *self, uint16_t node, uint32_t id, uint32_t piece, uint64_t request)
{
	struct clair_piece p = { .request = request, .id = id, .piece = piece,
				 .region = CLAIR_REGION_BUFFERS, .offset = kept->offset,
				 .length = SIZE, .status = draw(3) ? 0 : -ESTALE };

	(void)self;
	if (node >= NODES)
		abort();
	if (draw(4) == 0)
		clair_peers_coming(peers, node, request);
	held++;
	clair_peers_answer(peers, node, &p, sent, NULL);
}

static void end(void *self)
{
	(void)self;
}

static void found(void *self, uint32_t folder, const char *text)
{
	(void)self;
	(void)folder;
	if (strlen(text) > CLAIR_LINK_SMALL)
		abort();
}

static char *status(void *self)
{
	(void)self;
	return strdup("{}");
}

/* --- rounds ------------------------------------------------------------------------------------- */

static void look(void)
{
	json_t *o = json_object();

	clair_peers_json(peers, o);
	json_decref(o);
	json_decref(clair_peers_gather(peers, 0));
	clair_peers_capacity(peers);
	clair_peers_done(peers);
	for (uint32_t i = 0; i < NODES; i++) {
		const struct clair_peer_info *info = clair_peers_info(peers, i);
		if (info && (info->rank_count > CLAIR_PEER_RANKS ||
			     strlen(info->host) >= sizeof info->host ||
			     strlen(info->order) >= sizeof info->order))
			abort();
	}
}

static void ask(void)
{
	struct clair_buffer *out = NULL;
	uint64_t hash;
	uint16_t node = (uint16_t)(1 + draw(NODES - 1));

	int r = clair_peers_fetch(peers, node, draw(10), draw(3), SIZE, &out, &hash);
	if (r == 0) {
		right++;
		if (XXH3_64bits(out->data, SIZE) != hash)
			abort();
		clair_buffer_put(pool, out);
	} else if (out) {
		abort();
	}
}

static void run_round(void)
{
	struct clair_transport t = { NULL, transport };
	struct clair_peers_server server = { NULL, get, end, found, status };
	struct clair_link_frame hello = { .version = CLAIR_LINK_VERSION,
					  .kind = CLAIR_LINK_HELLO, .token = NODES };
	struct clair_peer_info info = { .catalog = 1 };
	uint32_t node, nodes;

	if (clair_peers_new(&t, &stats, &peers) < 0)
		abort();
	depth = 1;
	for (unsigned n = draw(20); n-- > 0;)
		draw_frame(); /* before it has begun */
	depth = 0;
	clair_peers_frame(peers, &hello, NULL, -1);
	if (clair_peers_hello(peers, 0, &node, &nodes) == 0) {
		clair_peers_agree(peers, &info, 0);
		look();
	}
	clair_peers_free(peers);
	/* Agreed, as it would be. */
	if (clair_peers_new(&t, &stats, &peers) < 0)
		abort();
	clair_peers_frame(peers, &hello, NULL, -1);
	clair_peers_begin(peers, NULL, pool);
	if (draw(4))
		clair_peers_set_server(peers, &server);
	for (unsigned i = 0; i < ROUND; i++) {
		ask();
		if (i % 64 == 63)
			look();
	}
	if (draw(2))
		clair_peers_closed(peers);
	clair_peers_leave(peers);
	clair_peers_free(peers);
}

static unsigned descriptors(void)
{
	autoclosedir DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	return n;
}

int main(int argc, char **argv)
{
	int64_t seconds = argc > 2 ? atoi(argv[2]) : 3;

	state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	pool = clair_pool_new(1 << 20);
	clair_log_setup("error:/dev/null"); /* each frame would have its line */
	if (!pool || clair_pool_share(pool, SHARED) < 0)
		abort();
	kept = clair_buffer_get(pool, SIZE);
	memset(kept->data, 0, SIZE);
	run_round();
	unsigned before = descriptors();
	int64_t until = clair_now_ns() + seconds * CLAIR_NS_PER_S;
	while (clair_now_ns() < until)
		run_round();
	unsigned after = descriptors();
	clair_buffer_put(pool, kept);
	clair_pool_free(pool);
	printf("%lu frames, %lu fetches that succeeded\n", frames, right);
	if (before != after || held)
		printf("%u descriptors before, %u after; %lu answers are not sent\n", before,
		       after, held);
	return before != after || held || !right;
}
