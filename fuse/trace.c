/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mount.h"

void clair_trace_start(struct clair_mount *mount, int socket)
{
	int old = atomic_exchange(&mount->trace, socket);

	/* A line that is being written to it now may still go there: the number must not
	 * mean another file yet. */
	if (old > 0)
		shutdown(old, SHUT_RDWR);
}

void clair_trace_open(struct clair_mount *mount, pid_t pid, uint32_t id)
{
	int socket = atomic_load_explicit(&mount->trace, memory_order_relaxed);
	char line[4200];
	size_t n = 0;

	if (socket <= 0)
		return;
	if (pid > 0)
		n = (size_t)snprintf(line, sizeof line, "%d ", (int)pid);
	n += clair_catalog_path(mount->catalog, id, line + n, sizeof line - n - 1);
	if (n > sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	if (send(socket, line, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN &&
	    atomic_compare_exchange_strong(&mount->trace, &socket, 0))
		close(socket);
}
