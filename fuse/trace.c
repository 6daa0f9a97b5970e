/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace.h"

#include <errno.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"
#include "mount.h"

/* Bytes that a watcher may be behind. */
#define ROOM (64 << 10)

/* Guards the socket while a line is written to it. Leaf; sends do not block. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void clair_trace_start(struct clair_mount *mount, int socket)
{
	autolock(&lock);
	int old = atomic_exchange(&mount->trace, socket);

	if (old > 0)
		close(old);
}

void clair_trace_open(struct clair_mount *mount, pid_t pid, uint32_t id)
{
	char line[4200];
	size_t n = 0;

	if (atomic_load_explicit(&mount->trace, memory_order_relaxed) <= 0)
		return;
	if (pid > 0)
		n = (size_t)snprintf(line, sizeof line, "%d ", (int)pid);
	n += clair_catalog_path(mount->catalog, id, line + n, sizeof line - n - 1);
	if (n > sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	autolock(&lock);
	int socket = atomic_load(&mount->trace), waiting;
	/* A line goes whole or not at all: only when the queue has room for any. */
	if (socket <= 0 ||
	    (ioctl(socket, SIOCOUTQ, &waiting) == 0 && waiting > ROOM))
		return;
	if (send(socket, line, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN) {
		atomic_store(&mount->trace, 0);
		close(socket);
	}
}
