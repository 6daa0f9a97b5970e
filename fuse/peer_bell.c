/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "peer_internal.h"

/* The doorbell: a UDP socket a peer process. MPI has nothing to sleep on, so who sends to a
 * node rings there. A ring says how many batches were sent, hence may come before, after or
 * instead of them; it also asks whether the other one lives, and tells what was taken. The
 * addresses are exchanged over MPI; the one that answers is taken. */

#define BELL_MAGIC 0x50434c42u
#define RING_GAP (50 * 1000LL) /* ns; below the time that a woken node stays awake */

enum { BELL_RING = 1, BELL_ASK = 2, BELL_ANSWER = 4, BELL_DEAD = 8 };

struct ring {
	uint32_t magic, flags;
	uint32_t from, zero;
	uint64_t secret; /* of who receives it */
	uint64_t batches, taken;
};
static_assert(sizeof(struct ring) == 40, "goes over the network");

static void find_addresses(struct peer_card *card)
{
	struct ifaddrs *all = NULL;
	int count = 0;

	if (getifaddrs(&all) < 0)
		return;
	for (struct ifaddrs *a = all; a && count < PEER_ADDRESSES; a = a->ifa_next) {
		if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET ||
		    !(a->ifa_flags & IFF_UP) || (a->ifa_flags & IFF_LOOPBACK))
			continue;
		const struct sockaddr_in *in =
			(const struct sockaddr_in *)(const void *)a->ifa_addr;
		card->address[count++] = in->sin_addr.s_addr;
	}
	freeifaddrs(all);
}

/* Equal for processes that reach each other over the loopback interface. */
static void find_host(struct peer_card *card)
{
	char boot[64] = "";
	struct stat st;
	autoclose int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, boot, sizeof boot - 1) < 0)
		boot[0] = 0;
	uint64_t h = 14695981039346656037ull;
	for (const char *c = boot; *c; c++)
		h = (h ^ (unsigned char)*c) * 1099511628211ull;
	card->host[0] = h;
	card->host[1] = stat("/proc/self/ns/net", &st) < 0 ? card->secret : st.st_ino;
}

int peer_bell_open(struct peer *p)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	socklen_t size = sizeof any;

	p->card.magic = PEER_MAGIC;
	if (getrandom(&p->card.secret, sizeof p->card.secret, 0) < 0)
		p->card.secret = (uint64_t)clair_now_ns() * 2654435761u + (uint64_t)getpid();
	p->bell = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (p->bell < 0 || bind(p->bell, (struct sockaddr *)&any, sizeof any) < 0 ||
	    getsockname(p->bell, (struct sockaddr *)&any, &size) < 0)
		return -errno; /* then MPI is asked every millisecond */
	p->card.port = ntohs(any.sin_port);
	find_addresses(&p->card);
	find_host(&p->card);
	return 0;
}

static void send_ring(struct peer *p, struct peer_node *n, uint32_t flags,
		      const struct sockaddr_in *to)
{
	struct ring r = { .magic = BELL_MAGIC,
			  .flags = flags | (n->dead || n->doomed ? BELL_DEAD : 0),
			  .from = p->self,
			  .secret = p->cards[n->id].secret,
			  .batches = n->batches_sent,
			  .taken = n->taken };

	/* Lost is lost: it is rung again while something is outstanding. */
	(void)!sendto(p->bell, &r, sizeof r, MSG_DONTWAIT | MSG_NOSIGNAL,
		      (const struct sockaddr *)to, sizeof *to);
}

static void ring_all_addresses(struct peer *p, struct peer_node *n, uint32_t flags)
{
	const struct peer_card *c = &p->cards[n->id];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)c->port) };

	if (!memcmp(c->host, p->card.host, sizeof c->host)) {
		to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		send_ring(p, n, flags, &to);
		return;
	}
	for (int i = 0; i < PEER_ADDRESSES && c->address[i]; i++) {
		to.sin_addr.s_addr = c->address[i];
		send_ring(p, n, flags, &to);
	}
}

void peer_ring(struct peer *p, struct peer_node *n, bool ask)
{
	uint32_t flags = BELL_RING | (ask ? BELL_ASK : 0);

	n->rung_at = p->now;
	n->ring_at = 0;
	if (p->bell < 0 || !p->cards[n->id].port)
		return;
	if (n->reachable)
		send_ring(p, n, flags, &n->address);
	else
		ring_all_addresses(p, n, flags);
}

void peer_ring_soon(struct peer *p, struct peer_node *n)
{
	if (p->now - n->rung_at >= RING_GAP) {
		peer_ring(p, n, false);
		return;
	}
	if (!n->ring_at)
		n->ring_at = n->rung_at + RING_GAP;
	peer_due(p, n->ring_at);
}

static void take_ring(struct peer *p, const struct ring *r, const struct sockaddr_in *from)
{
	struct peer_node *n = &p->nodes[r->from];

	n->rings_us = true;
	n->heard = p->now;
	n->unanswered = 0;
	if (r->batches > n->batches_rung)
		n->batches_rung = r->batches;
	if (!n->dead)
		peer_acked(p, n, r->taken);
	if (r->flags & BELL_ANSWER) {
		n->reachable = true;
		n->address = *from;
		if (r->flags & BELL_DEAD && !n->dead)
			peer_doom(p, n, "it has given us up");
	}
	if (r->flags & BELL_ASK)
		send_ring(p, n, BELL_ANSWER, from);
	if (n->batches_rung > n->batches_received)
		p->active = p->now;
}

void peer_bell_read(struct peer *p)
{
	for (int i = 0; i < 256 && p->bell >= 0; i++) {
		struct ring r;
		struct sockaddr_in from;
		socklen_t size = sizeof from;
		ssize_t got = recvfrom(p->bell, &r, sizeof r, MSG_DONTWAIT | MSG_TRUNC,
				       (struct sockaddr *)&from, &size);

		if (got < 0 && errno != ECONNREFUSED)
			return;
		if (got == sizeof r && size == sizeof from && r.magic == BELL_MAGIC &&
		    r.secret == p->card.secret && r.from < p->count && r.from != p->self)
			take_ring(p, &r, &from);
	}
}

/* Whether all others that live can wake us. */
bool peer_bell_trusted(const struct peer *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (i != p->self && !p->nodes[i].rings_us && !p->nodes[i].dead)
			return false;
	return true;
}
