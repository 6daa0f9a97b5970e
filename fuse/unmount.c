/* SPDX-License-Identifier: BSD-3-Clause */
#include "unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "control.h"

#define ANSWER_MS 3000

static int by_fusermount(const char *path, bool lazy)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, STDERR_FILENO); /* the caller says it in its own words */
		execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", path,
		       (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 127 ? -ENOENT : -EBUSY;
}

int clair_unmount(const char *path, bool lazy)
{
	if (geteuid() != 0)
		return by_fusermount(path, lazy);
	/* MNT_FORCE fails what still waits for an answer: a killed daemon may not end before. */
	return umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH | MNT_FORCE : 0)) < 0 ? -errno : 0;
}

/* A plain stat would be answered from the attributes that the kernel remembers. */
static bool asked_is_dead(const char *path)
{
	struct statx st;

	return statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_MODE, &st) < 0 &&
	       (errno == ENOTCONN || errno == ECONNABORTED);
}

/* Whether a mount whose daemon is gone lies at PATH. A process of its own asks: a daemon that
 * is stopped, or hangs, never answers. */
static bool is_dead(const char *path)
{
	pid_t pid = fork();
	int status = 0;

	if (pid < 0)
		return asked_is_dead(path);
	if (pid == 0)
		_exit(asked_is_dead(path));
	for (int ms = 0; ms < ANSWER_MS; ms++) {
		pid_t r = waitpid(pid, &status, WNOHANG);
		if (r == pid)
			return WIFEXITED(status) && WEXITSTATUS(status) == 1;
		if (r < 0 && errno != EINTR)
			return false;
		poll(NULL, 0, 1);
	}
	/* Where even that does not end it, it is not waited for. */
	kill(pid, SIGKILL);
	waitpid(pid, &status, WNOHANG);
	return false;
}

int clair_unmount_dead(const char *path)
{
	int count = 0;

	/* Several may lie over each other. */
	for (; count < 16 && is_dead(path); count++) {
		/* What leads there may be a symbolic link; where it ends can be told
		 * without asking the dead one. */
		autofree char *real = realpath(path, NULL);
		int r = clair_unmount(real ? real : path, true);
		if (r < 0)
			return r;
	}
	return count;
}

int clair_unmount_find(const char *path)
{
	autofree int *pids = NULL;
	size_t count;
	int found = 0;

	if (clair_control_list(&pids, &count) < 0)
		return 0;
	for (size_t i = 0; i < count && !found; i++) {
		json_t *report = NULL;
		if (clair_control_report(pids[i], 2000, &report) < 0)
			continue;
		const char *point =
			json_string_value(json_object_get(report, "mountpoint"));
		if (point && !strcmp(point, path))
			found = pids[i];
		json_decref(report);
	}
	return found;
}
