/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "cleanup.h"
#include "peer_internal.h"

/* The socket to the mount process: its frames, and ours for it. */

#define FRAMES_A_TURN 128

static ssize_t send_out(struct peer *p, const struct peer_out *o)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec v = { (void *)(uintptr_t)o->bytes, o->size };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (o->fd >= 0) {
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof control.bytes;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &o->fd, sizeof(int));
	}
	return sendmsg(p->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void mount_gone(struct peer *p)
{
	if (p->gone)
		return;
	p->gone = true;
	for (uint32_t i = 0; i < p->count; i++)
		if (i != p->self && !p->nodes[i].dead)
			peer_enqueue(p, &p->nodes[i], peer_item_new(PEER_DOWN, NULL, 0));
}

void peer_mount_flush(struct peer *p)
{
	struct peer_out *o;

	p->full = false;
	while ((o = p->out)) {
		if (!p->gone && send_out(p, o) < 0) {
			if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) {
				p->full = true;
				return;
			}
			mount_gone(p);
		}
		p->out = o->next;
		if (!p->out)
			p->out_last = &p->out;
		p->out_bytes -= o->size;
		if (o->fd >= 0)
			close(o->fd);
		free(o);
	}
}

void peer_tell(struct peer *p, struct clair_link_frame frame, const void *small, int fd)
{
	struct peer_out *o = NULL;

	frame.version = CLAIR_LINK_VERSION;
	if (!p->gone)
		o = malloc(sizeof *o + sizeof frame + frame.small);
	if (!o) {
		if (fd >= 0)
			close(fd);
		return;
	}
	*o = (struct peer_out){ .fd = fd, .size = sizeof frame + frame.small };
	memcpy(o->bytes, &frame, sizeof frame);
	if (frame.small && small)
		memcpy(o->bytes + sizeof frame, small, frame.small);
	*p->out_last = o;
	p->out_last = &o->next;
	p->out_bytes += o->size;
}

void peer_tell_sent(struct peer *p, uint64_t token, bool dead)
{
	peer_tell(p,
		  (struct clair_link_frame){ .kind = CLAIR_LINK_SENT,
					     .flags = dead ? CLAIR_LINK_DEAD : 0,
					     .token = token },
		  NULL, -1);
}

static void refuse(struct peer *p, const char *what)
{
	if (p->garbage_mount_told)
		return;
	p->garbage_mount_told = true;
	fprintf(stderr, "clairfs-peer: the mount process said something wrong (%s); ignored\n",
		what);
}

static bool queue_has_room(const struct peer_node *n, const struct clair_link_frame *f)
{
	return n->queue.small + f->small <= PEER_QUEUE_SMALL &&
	       n->queue.large + f->length <= PEER_QUEUE_LARGE;
}

static void take_send(struct peer *p, const struct clair_link_frame *f, const char *small)
{
	struct peer_region *r = NULL;
	struct peer_node *n = f->node < p->count ? &p->nodes[f->node] : NULL;

	if (f->length && f->length <= CLAIR_LINK_PAYLOAD)
		r = peer_region_find(p, f->region, f->offset, f->length);
	if (!n || n->id == p->self || (f->length && !r)) {
		refuse(p, "send");
		peer_tell_sent(p, f->token, true);
		return;
	}
	struct peer_item *item = n->down || n->doomed || !queue_has_room(n, f)
					 ? NULL
					 : peer_item_new(PEER_MESSAGE, small, f->small);
	if (!item) {
		peer_tell_sent(p, f->token, true);
		return;
	}
	item->tell = true;
	item->token = f->token;
	item->key = f->key;
	item->length = f->length;
	if (r) {
		item->data = r->base + f->offset;
		item->region = r;
		r->users++;
	}
	peer_enqueue(p, n, item);
}

static void take_unland(struct peer *p, uint64_t key)
{
	struct peer_landing *l = peer_landing_find(p, key);

	if (!l)
		return; /* its MESSAGE is on the way */
	l->unwanted = true;
	if (l->state != LANDING_FREE)
		return;
	peer_landing_remove(p, l);
	peer_tell(p, (struct clair_link_frame){ .kind = CLAIR_LINK_UNLANDED, .key = key }, NULL,
		  -1);
}

static void take_bye(struct peer *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (i != p->self && !p->nodes[i].dead)
			peer_enqueue(p, &p->nodes[i], peer_item_new(PEER_BYE, NULL, 0));
	peer_leave(p, 1000000000);
}

static void take_frame(struct peer *p, const struct clair_link_frame *f, const char *small,
		       int *fd)
{
	switch (f->kind) {
	case CLAIR_LINK_REGION:
		if (*fd >= 0 && !peer_region_add(p, f->region, f->length, *fd))
			*fd = -1;
		else
			refuse(p, "region");
		break;
	case CLAIR_LINK_SEND:
		take_send(p, f, small);
		break;
	case CLAIR_LINK_LAND:
		if (peer_landing_add(p, f) < 0)
			refuse(p, "land");
		break;
	case CLAIR_LINK_UNLAND:
		take_unland(p, f->key);
		break;
	case CLAIR_LINK_BULK:
		if (*fd >= 0 && !peer_bulk_start(p, f->length, *fd))
			*fd = -1;
		else
			refuse(p, "bulk");
		break;
	case CLAIR_LINK_BYE:
		take_bye(p);
		break;
	default:
		refuse(p, "kind");
	}
}

/* The descriptor that came with M; others are closed. */
static int take_fds(struct msghdr *m)
{
	int got = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (got < 0)
				got = fd;
			else
				close(fd);
		}
	}
	return got;
}

void peer_mount_read(struct peer *p)
{
	static union {
		struct clair_link_frame head;
		char bytes[sizeof(struct clair_link_frame) + CLAIR_LINK_SMALL + 8];
	} packet;

	for (int i = 0; i < FRAMES_A_TURN && !p->gone; i++) {
		union {
			char bytes[CMSG_SPACE(4 * sizeof(int))];
			struct cmsghdr align;
		} control;
		struct iovec v = { packet.bytes, sizeof packet.bytes };
		struct msghdr m = { .msg_iov = &v,
				    .msg_iovlen = 1,
				    .msg_control = control.bytes,
				    .msg_controllen = sizeof control.bytes };
		ssize_t got = recvmsg(p->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			mount_gone(p);
			return;
		}
		p->active = p->now;
		int fd = take_fds(&m);
		struct clair_link_frame *f = &packet.head;
		if ((size_t)got < sizeof *f || (m.msg_flags & MSG_TRUNC) ||
		    f->version != CLAIR_LINK_VERSION || f->small > CLAIR_LINK_SMALL ||
		    (size_t)got != sizeof *f + f->small)
			refuse(p, "frame");
		else
			take_frame(p, f, packet.bytes + sizeof *f, &fd);
		if (fd >= 0)
			close(fd);
	}
}
