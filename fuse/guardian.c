/* SPDX-License-Identifier: BSD-3-Clause */
#include "guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"

static _Noreturn void guard(int abort_fd, pid_t daemon)
{
	sigset_t death;
	siginfo_t info;

	sigemptyset(&death);
	sigaddset(&death, SIGUSR1);
	sigprocmask(SIG_BLOCK, &death, NULL);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
	/* No pipe, socket or file of the daemon may stay open because of us. */
	if (dup2(abort_fd, 0) < 0 || close_range(1, ~0u, 0) < 0)
		_exit(1);
	/* It may have died before prctl. */
	while (getppid() == daemon) {
		/* Its death is told as from itself; the same signal to all of a job is not it. */
		if (sigwaitinfo(&death, &info) > 0 && info.si_pid == daemon)
			break;
	}
	_exit(write(0, "1", 1) == 1 ? 0 : 1);
}

/* The file that aborts connection MINOR. Where nobody mounted the control file system (a
 * container), root can make one that is nowhere. */
static int open_abort(unsigned minor)
{
	char path[64];

	snprintf(path, sizeof path, "/sys/fs/fuse/connections/%u/abort", minor);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	autoclose int fs = fsopen("fusectl", FSOPEN_CLOEXEC);
	if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	autoclose int top = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (top < 0)
		return -errno;
	snprintf(path, sizeof path, "%u/abort", minor);
	fd = openat(top, path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

pid_t clair_guardian_start(unsigned minor)
{
	pid_t daemon = getpid();
	autoclose int fd = open_abort(minor);

	if (fd < 0)
		return fd;
	pid_t pid = fork();
	if (pid == 0)
		guard(fd, daemon);
	return pid < 0 ? -errno : pid;
}

void clair_guardian_stop(pid_t guardian)
{
	if (guardian <= 0)
		return;
	kill(guardian, SIGKILL);
	while (waitpid(guardian, NULL, 0) < 0 && errno == EINTR)
		;
}
