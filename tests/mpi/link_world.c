/* SPDX-License-Identifier: BSD-3-Clause */
#include "link_world.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

void world_fail(const struct world *w, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "FAIL: node %u: ", w->self);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	_exit(1);
}

void world_send_frame(struct world *w, struct clair_link_frame f, const void *small, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec v[2] = { { &f, sizeof f }, { (void *)(uintptr_t)small, f.small } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = f.small ? 2 : 1 };
	int64_t end = clair_now_ns() + WORLD_WAIT_S * CLAIR_NS_PER_S;

	f.version = CLAIR_LINK_VERSION;
	if (fd >= 0) {
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof control.bytes;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	if (f.kind == CLAIR_LINK_SEND)
		w->sends++;
	while (sendmsg(w->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		if (errno != EAGAIN && errno != ENOBUFS)
			world_fail(w, "send to the peer process: %m");
		if (clair_now_ns() > end)
			world_fail(w, "the peer process does not read");
		struct pollfd p = { .fd = w->fd, .events = POLLOUT };
		poll(&p, 1, 100);
	}
}

static int take_fd(struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);
	int fd = -1;

	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

static void take(struct world *w, const struct clair_link_frame *f, const char *small, int fd)
{
	switch (f->kind) {
	case CLAIR_LINK_HELLO:
		w->self = f->node;
		w->count = (uint32_t)f->token;
		if (w->count > WORLD_NODES)
			world_fail(w, "too many nodes");
		break;
	case CLAIR_LINK_SENT:
		w->sents++;
		w->sents_dead += (f->flags & CLAIR_LINK_DEAD) != 0;
		break;
	case CLAIR_LINK_STATE:
		if (f->node >= w->count)
			world_fail(w, "state of node %u", f->node);
		w->dead[f->node] = f->flags & (CLAIR_LINK_DEAD | CLAIR_LINK_SILENT);
		w->dead_at[f->node] = clair_now_ns();
		break;
	case CLAIR_LINK_END:
		w->ended = true;
		break;
	default:
		w->take(w, f, small, fd);
	}
}

/* One frame; false when there is none. */
static bool receive(struct world *w)
{
	static union {
		struct clair_link_frame head;
		char bytes[sizeof(struct clair_link_frame) + CLAIR_LINK_SMALL + 1];
	} packet;
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec v = { packet.bytes, sizeof packet.bytes };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = sizeof control.bytes };
	ssize_t got = recvmsg(w->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got <= 0) {
		w->gone = true;
		if (w->ended || w->may_go)
			return false;
		world_fail(w, "the peer process is gone");
	}
	if ((size_t)got < sizeof packet.head || packet.head.version != CLAIR_LINK_VERSION ||
	    (size_t)got != sizeof packet.head + packet.head.small)
		world_fail(w, "a frame of %zd bytes", got);
	take(w, &packet.head, packet.bytes + sizeof packet.head, take_fd(&m));
	return true;
}

void world_turn(struct world *w, int ms)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };

	if (w->gone)
		p.fd = -1;
	if (poll(&p, 1, ms) <= 0)
		return;
	for (int i = 0; i < 256 && receive(w); i++)
		;
}

void world_hello(struct world *w)
{
	int64_t end = clair_now_ns() + WORLD_WAIT_S * CLAIR_NS_PER_S;

	while (!w->count) {
		if (clair_now_ns() > end)
			world_fail(w, "no HELLO");
		world_turn(w, 100);
	}
}

uint32_t world_living(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->count; i++)
		n += i != w->self && !w->dead[i];
	return n;
}

uint64_t world_random(uint64_t seed, uint64_t i)
{
	uint64_t z = (seed + i) * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void world_fill(void *at, uint64_t length, uint64_t seed)
{
	unsigned char *c = at;
	uint64_t i = 0;

	for (; i + 8 <= length; i += 8) {
		uint64_t v = world_random(seed, i);
		memcpy(c + i, &v, 8);
	}
	for (; i < length; i++)
		c[i] = (unsigned char)(seed + i);
}

bool world_filled(const void *at, uint64_t length, uint64_t seed)
{
	const unsigned char *c = at;
	uint64_t i = 0;

	for (; i + 8 <= length; i += 8) {
		uint64_t v = world_random(seed, i);
		if (memcmp(c + i, &v, 8))
			return false;
	}
	for (; i < length; i++)
		if (c[i] != (unsigned char)(seed + i))
			return false;
	return true;
}

void world_garbage(struct world *w)
{
	static char bytes[CLAIR_LINK_SMALL + sizeof(struct clair_link_frame)];
	struct clair_link_frame f = { .version = CLAIR_LINK_VERSION };

	for (uint32_t i = 0; i < 3000; i++) {
		uint64_t r = world_random(w->self + 7, i);
		world_fill(bytes, sizeof bytes, r);
		f.kind = (uint16_t)(r % 9);
		if (f.kind == CLAIR_LINK_BYE || f.kind == CLAIR_LINK_SEND)
			f.kind = CLAIR_LINK_LAND;
		f.node = w->count + (uint32_t)(r >> 8) % 1000;
		f.region = (uint32_t)(r >> 16) % 4;
		f.offset = world_random(r, 1) >> (r % 64);
		f.length = world_random(r, 2) >> (r % 50);
		f.key = UINT64_MAX - r % 100;
		if (f.region == 1 || f.region == 2)
			f.offset |= 1ull << 60; /* never in the good ones */
		f.small = (uint32_t)(r % 100);
		memcpy(bytes, &f, sizeof f);
		size_t size = r % 3 ? sizeof f + f.small : 1 + r % 200;
		if (r % 3 == 1)
			bytes[0] = 77;
		if (size < sizeof f || r % 3)
			(void)!send(w->fd, bytes, size, MSG_NOSIGNAL);
	}
	for (uint32_t i = 0; i < 100; i++)
		world_send_frame(w,
				 (struct clair_link_frame){ .kind = CLAIR_LINK_SEND,
							    .node = w->count + i,
							    .length = i * 100000000ull,
							    .offset = UINT64_MAX - i },
				 NULL, -1);
}
