/* SPDX-License-Identifier: BSD-3-Clause */
#include "peer_launcher.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cleanup.h"

#define ADDRESSES 8
#define WAIT_MS 100

/* ADDRESS:PORT answers within MS milliseconds. */
static bool answers(const char *address, int port, int ms)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	autoclose int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int error = 0;
	socklen_t size = sizeof error;

	if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1)
		return false;
	if (!connect(fd, (struct sockaddr *)&to, sizeof to))
		return true;
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	return errno == EINPROGRESS && poll(&p, 1, ms) == 1 &&
	       !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) && !error;
}

/* As in 1814036480.0;tcp://10.0.0.1,192.168.0.1:52023;tcp6://… */
bool clair_launcher_lives(void)
{
	const char *uri = getenv("OMPI_MCA_orte_hnp_uri");
	const char *at = uri ? strstr(uri, "tcp://") : NULL;

	if (!at)
		return true;
	autofree char *list = strdup(at + strlen("tcp://"));
	if (!list)
		return true;
	list[strcspn(list, ";\"")] = 0;
	char *colon = strrchr(list, ':');
	if (!colon)
		return true;
	*colon = 0;
	int port = atoi(colon + 1), count = 1;
	for (const char *c = list; *c; c++)
		count += *c == ',';
	if (port <= 0 || port > 65535)
		return true;
	char *rest = NULL;
	int tried = 0;
	for (char *a = strtok_r(list, ",", &rest); a && tried < ADDRESSES;
	     a = strtok_r(NULL, ",", &rest), tried++)
		if (answers(a, port, WAIT_MS / (count < ADDRESSES ? count : ADDRESSES)))
			return true;
	return false;
}
