/* SPDX-License-Identifier: BSD-3-Clause */
#include "peer_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "log.h"

/* A peer process that takes nothing is as good as dead. */
#define QUEUE_MOST 65536u
#define LAST_MS 500

struct packet {
	struct packet *next;
	int fd; /* -1: none */
	size_t size;
	unsigned char bytes[];
};

struct clair_peer_link {
	int socket, wake;
	struct clair_peers *peers;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* all that follows */
	struct packet *first, **last;
	size_t queued;
	bool stop, broken;
};

int clair_peer_link_new(int socket, struct clair_peer_link **out)
{
	struct clair_peer_link *l = calloc(1, sizeof *l);

	if (!l) {
		close(socket);
		return -ENOMEM;
	}
	l->socket = socket;
	l->last = &l->first;
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&l->lock, NULL);
	if (l->wake < 0 || fcntl(socket, F_SETFL, O_NONBLOCK) < 0) {
		int r = -errno;
		clair_peer_link_free(l);
		return r;
	}
	*out = l;
	return 0;
}

/* --- out ------------------------------------------------------------------------------- */

static int transmit(int socket, const void *a, size_t na, const void *b, size_t nb, int fd)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov[2] = { { (void *)(uintptr_t)a, na }, { (void *)(uintptr_t)b, nb } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = nb ? 2 : 1 };

	if (fd >= 0) {
		msg.msg_control = space;
		msg.msg_controllen = sizeof space;
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	ssize_t n;
	do
		n = sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static void free_packet(struct packet *p)
{
	if (p->fd >= 0)
		close(p->fd);
	free(p);
}

/* lock */
static int queue(struct clair_peer_link *l, const struct clair_link_frame *f,
		 const void *small, int fd)
{
	struct packet *p;

	if (l->queued >= QUEUE_MOST)
		return -ENOBUFS;
	p = malloc(sizeof *p + sizeof *f + f->small);
	if (!p)
		return -ENOMEM;
	p->next = NULL;
	p->fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (fd >= 0 && p->fd < 0) {
		int r = -errno;
		free(p);
		return r;
	}
	p->size = sizeof *f + f->small;
	memcpy(p->bytes, f, sizeof *f);
	if (f->small)
		memcpy(p->bytes + sizeof *f, small, f->small);
	*l->last = p;
	l->last = &p->next;
	l->queued++;
	return 0;
}

/* Sends what is queued as far as the socket takes it. lock */
static void flush(struct clair_peer_link *l)
{
	while (l->first && !l->broken) {
		struct packet *p = l->first;
		int r = transmit(l->socket, p->bytes, p->size, NULL, 0, p->fd);
		if (r == -EAGAIN || r == -ENOBUFS)
			return;
		if (r < 0)
			l->broken = true;
		l->first = p->next;
		if (!l->first)
			l->last = &l->first;
		l->queued--;
		free_packet(p);
	}
}

static int link_send(void *self, const struct clair_link_frame *f, const void *small, int fd)
{
	struct clair_peer_link *l = self;
	uint64_t one = 1;

	autolock(&l->lock);
	if (l->broken)
		return -EPIPE;
	if (!l->first) {
		int r = transmit(l->socket, f, sizeof *f, small, f->small, fd);
		if (r != -EAGAIN && r != -ENOBUFS)
			return r;
	}
	int r = queue(l, f, small, fd);
	if (write(l->wake, &one, sizeof one) < 0 && errno != EAGAIN)
		log_debug("link: %m");
	return r;
}

struct clair_transport clair_peer_link_transport(struct clair_peer_link *l)
{
	return (struct clair_transport){ .self = l, .send = link_send };
}

/* --- in -------------------------------------------------------------------------------- */

/* 1: a frame came, 0: none for now, or a negative errno. */
static int receive(struct clair_peer_link *l)
{
	struct clair_link_frame f;
	unsigned char small[CLAIR_LINK_SMALL];
	char space[CMSG_SPACE(sizeof(int))];
	struct iovec iov[2] = { { &f, sizeof f }, { small, sizeof small } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = space,
			      .msg_controllen = sizeof space };
	int fd = -1;

	ssize_t n = recvmsg(l->socket, &msg, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(c), sizeof fd);
	if ((size_t)n < sizeof f || (size_t)n - sizeof f != f.small) {
		if (fd >= 0)
			close(fd);
		return 1;
	}
	clair_peers_frame(l->peers, &f, small, fd);
	return 1;
}

static void *link_thread(void *arg)
{
	struct clair_peer_link *l = arg;
	struct pollfd p[2] = { { l->socket, POLLIN, 0 }, { l->wake, POLLIN, 0 } };
	uint64_t count;
	sigset_t all;
	int r = 0;

	/* Signals are the keeper's, and the main thread's before there is one. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);

	while (r >= 0) {
		pthread_mutex_lock(&l->lock);
		bool stop = l->stop || l->broken;
		p[0].events = (short)(POLLIN | (l->first ? POLLOUT : 0));
		pthread_mutex_unlock(&l->lock);
		if (stop)
			break;
		if (poll(p, 2, -1) < 0)
			continue;
		if (p[1].revents && read(l->wake, &count, sizeof count) < 0 && errno != EAGAIN)
			break;
		if (p[0].revents & POLLOUT) {
			autolock(&l->lock);
			flush(l);
		}
		if (p[0].revents & (POLLIN | POLLHUP | POLLERR))
			while ((r = receive(l)) > 0)
				;
	}
	pthread_mutex_lock(&l->lock);
	l->broken = true;
	pthread_mutex_unlock(&l->lock);
	clair_peers_closed(l->peers);
	return NULL;
}

int clair_peer_link_start(struct clair_peer_link *l, struct clair_peers *peers)
{
	l->peers = peers;
	int r = -pthread_create(&l->thread, NULL, link_thread, l);
	l->started = r == 0;
	return r;
}

void clair_peer_link_free(struct clair_peer_link *l)
{
	uint64_t one = 1;

	if (!l)
		return;
	if (l->started) {
		int64_t end = clair_now_ns() + LAST_MS * CLAIR_NS_PER_MS;
		for (;;) {
			pthread_mutex_lock(&l->lock);
			flush(l);
			bool done = !l->first || l->broken || clair_now_ns() > end;
			l->stop = done;
			pthread_mutex_unlock(&l->lock);
			if (done)
				break;
			poll(NULL, 0, 2);
		}
		if (write(l->wake, &one, sizeof one) < 0)
			log_debug("link: %m");
		pthread_join(l->thread, NULL);
	}
	while (l->first) {
		struct packet *p = l->first;
		l->first = p->next;
		free_packet(p);
	}
	close(l->socket);
	if (l->wake >= 0)
		close(l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
