/* SPDX-License-Identifier: BSD-3-Clause */
/* The other end of the control socket, and where it is. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "control.h"
#include "control_path.h"

/* Room that "/PID.sock" takes. */
#define NAME_ROOM 20

static int make_folder(const char *folder, uid_t uid)
{
	struct stat st;

	if (mkdir(folder, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (lstat(folder, &st) < 0)
		return -errno;
	/* Somebody else may have made it first: /tmp is everybody's. */
	if (!S_ISDIR(st.st_mode) || st.st_uid != uid || st.st_mode & 077)
		return -EACCES;
	return 0;
}

/* The folder of the caller's sockets. A runtime folder that is missing or too long for a
 * socket's address is passed over. */
static int own_folder(char *folder, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (runtime && *runtime == '/' &&
	    snprintf(folder, size, "%s/clairfs", runtime) + NAME_ROOM <
		    (int)sizeof(((struct sockaddr_un *)0)->sun_path) &&
	    make_folder(folder, geteuid()) == 0)
		return 0;
	snprintf(folder, size, "/tmp/clairfs-%u", geteuid());
	return make_folder(folder, geteuid());
}

int clair_control_path(int pid, char *path, size_t size)
{
	char folder[128];

	int r = own_folder(folder, sizeof folder);
	if (r < 0)
		return r;
	return snprintf(path, size, "%s/%d.sock", folder, pid) < (int)size ? 0 :
									     -ENAMETOOLONG;
}

/* Folders to look into: the user's own ones; root sees those of all. */
static size_t folders_to_search(char folders[][128], size_t most)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	size_t n = 0;

	if (runtime && *runtime == '/' && strlen(runtime) < 100)
		snprintf(folders[n++], 128, "%s/clairfs", runtime);
	snprintf(folders[n++], 128, "/tmp/clairfs-%u", geteuid());
	if (geteuid() != 0)
		return n;
	autoclosedir DIR *tmp = opendir("/tmp");
	for (struct dirent *d; tmp && n < most && (d = readdir(tmp));)
		if (!strncmp(d->d_name, "clairfs-", 8) && strcmp(d->d_name, "clairfs-0") &&
		    d->d_name[8] >= '0' && d->d_name[8] <= '9' && strlen(d->d_name) < 32)
			snprintf(folders[n++], 128, "/tmp/%.40s", d->d_name);
	autoclosedir DIR *run = opendir("/run/user");
	for (struct dirent *d; run && n < most && (d = readdir(run));)
		if (d->d_name[0] != '.' && strlen(d->d_name) < 32)
			snprintf(folders[n++], 128, "/run/user/%.40s/clairfs", d->d_name);
	return n;
}

static int find_socket(int pid, char *path, size_t size)
{
	char folders[64][128];
	size_t n = folders_to_search(folders, 64);

	for (size_t i = 0; i < n; i++) {
		snprintf(path, size, "%s/%d.sock", folders[i], pid);
		if (!access(path, F_OK))
			return 0;
	}
	return -ECONNREFUSED;
}

int clair_control_list(int **pids, size_t *count)
{
	char folders[64][128], path[256];
	size_t folder_count = folders_to_search(folders, 64), n = 0;
	autofree int *list = NULL;

	for (size_t i = 0; i < folder_count; i++) {
		autoclosedir DIR *dir = opendir(folders[i]);
		for (struct dirent *d; dir && (d = readdir(dir));) {
			char *end;
			long pid = strtol(d->d_name, &end, 10);
			if (end == d->d_name || strcmp(end, ".sock"))
				continue;
			if (kill((pid_t)pid, 0) < 0 && errno == ESRCH) {
				snprintf(path, sizeof path, "%s/%ld.sock", folders[i], pid);
				unlink(path);
				continue;
			}
			int *longer = realloc(list, (n + 1) * sizeof *longer);
			if (!longer)
				return -ENOMEM;
			list = longer;
			list[n++] = (int)pid;
		}
	}
	*pids = take_ptr(list);
	*count = n;
	return 0;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return -errno;
	return take_fd(fd);
}

static int receive_all(int fd, int64_t deadline, char **text, size_t *size)
{
	autofree char *buffer = NULL;
	size_t have = 0, room = 0;

	for (;;) {
		struct pollfd p = { fd, POLLIN, 0 };
		int64_t left = (deadline - clair_now_ns()) / CLAIR_NS_PER_MS;

		if (left <= 0 || poll(&p, 1, (int)left) == 0)
			return -ETIMEDOUT;
		if (have == room) {
			room = room ? room * 2 : 65536;
			char *longer = realloc(buffer, room);
			if (!longer)
				return -ENOMEM;
			buffer = longer;
		}
		ssize_t n = recv(fd, buffer + have, room - have, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	*text = take_ptr(buffer);
	*size = have;
	return 0;
}

int clair_control_connect(int pid, const json_t *question)
{
	autofree char *line = json_dumps(question, JSON_COMPACT);
	char path[256];

	if (!line)
		return -ENOMEM;
	int r = find_socket(pid, path, sizeof path);
	if (r < 0)
		return r;
	autoclose int fd = connect_to(path);
	if (fd < 0)
		return fd;
	if (send(fd, line, strlen(line), MSG_NOSIGNAL) < 0 ||
	    send(fd, "\n", 1, MSG_NOSIGNAL) < 0)
		return -errno;
	return take_fd(fd);
}

int clair_control_ask(int pid, const json_t *question, int timeout_ms, json_t **answer)
{
	int64_t deadline = clair_now_ns() + timeout_ms * CLAIR_NS_PER_MS;
	autofree char *text = NULL;
	size_t size = 0;

	autoclose int fd = clair_control_connect(pid, question);
	if (fd < 0)
		return fd;
	int r = receive_all(fd, deadline, &text, &size);
	if (r < 0)
		return r;
	*answer = json_loadb(text, size, 0, NULL);
	return *answer ? 0 : -EACCES; /* not ours to ask */
}

int clair_control_report(int pid, int timeout_ms, json_t **report)
{
	json_t *question = json_pack("{s:s}", "do", "status");

	int r = question ? clair_control_ask(pid, question, timeout_ms, report) : -ENOMEM;
	json_decref(question);
	return r;
}
