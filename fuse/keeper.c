/* SPDX-License-Identifier: BSD-3-Clause */
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "guardian.h"
#include "log.h"
#include "mount.h"

/* From the end of the mount to the end of the process, at most: a PFS that hangs must not
 * hold it. */
#define LAST_MS 4000
#define AFTER_SIGNAL_MS 1700
/* How often it is looked, once nobody new can reach the mount, whether the session has ended:
 * its loop waits for threads that may hang in the source, and only then returns. */
#define LOOK_MS 500

struct clair_keeper {
	struct clair_mount *mount;
	pthread_t thread, main;
	int signals, lifeline, table, wake;
	pid_t guardian;
	bool own_mount;
	unsigned major, minor; /* of the mounted file system */
	_Atomic bool ending, stop, job_ends;
	int64_t deadline; /* the keeper's own; 0: none */
	bool gone;        /* the keeper's own: nobody new can reach the mount */
};

void clair_keeper_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGQUIT);
}

static void nothing(int sig)
{
	(void)sig;
}

/* Gives up what holds the mount. Stage threads may be using the descriptor: it becomes one
 * on which every open fails, and keeps its number. */
static void let_go(struct clair_keeper *k)
{
	int fd = atomic_load(&k->mount->root_fd);

	if (fd < 0)
		return;
	autoclose int null = open("/dev/null", O_PATH | O_CLOEXEC);
	if (null < 0 || dup3(null, fd, O_CLOEXEC) < 0)
		log_warning("the mount is held until the end of the process: %m");
}

static bool in_mount_table(struct clair_keeper *k)
{
	autofclose FILE *f = fopen("/proc/self/mountinfo", "re");
	autofree char *line = NULL;
	size_t room = 0;

	while (f && getline(&line, &room, f) >= 0) {
		unsigned major, minor;
		if (sscanf(line, "%*d %*d %u:%u", &major, &minor) == 2 &&
		    major == k->major && minor == k->minor)
			return true;
	}
	return !f;
}

/* Spaces and the like are octal in the mount table. */
static void unescape(char *text)
{
	char *to = text;

	for (char *from = text; *from; from++) {
		if (*from == '\\' && from[1] >= '0' && from[1] <= '3') {
			*to++ = (char)strtol((char[]){ from[1], from[2], from[3], 0 }, NULL, 8);
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}

/* What is mounted at POINT, the topmost: each FUSE mount has a number of its own. (A stat of
 * the root would be a request that nobody may serve.) */
static bool find_device(const char *point, unsigned *major, unsigned *minor)
{
	autofclose FILE *f = fopen("/proc/self/mountinfo", "re");
	autofree char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (f && getline(&line, &room, f) >= 0) {
		unsigned a, b;
		char there[4096];
		if (sscanf(line, "%*d %*d %u:%u %*s %4095s", &a, &b, there) != 3)
			continue;
		unescape(there);
		if (!strcmp(there, point)) {
			*major = a; /* the last one is on top */
			*minor = b;
			found = true;
		}
	}
	return found;
}

/* Takes the mount off its mount point, unless it is gone already: then something else lies
 * there, which may even be the source's own mount. */
static void detach(struct clair_keeper *k)
{
	const char *point = k->mount->mountpoint;
	unsigned major, minor;

	if (!find_device(point, &major, &minor) || major != k->major || minor != k->minor)
		return;
	if (geteuid() == 0) {
		/* Our own lookups that nobody will answer any more fail by MNT_FORCE. */
		umount2(point, MNT_DETACH | MNT_FORCE);
		return;
	}
	pid_t pid = fork();
	if (pid == 0) {
		execlp("fusermount3", "fusermount3", "-u", "-z", "-q", "--", point,
		       (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* The session's loop ends when its thread is interrupted with the flag set. */
static void end_session(struct clair_keeper *k)
{
	fuse_session_exit(k->mount->session);
	pthread_kill(k->main, SIGUSR2);
}

static void give_up(struct clair_keeper *k)
{
	int64_t deadline = clair_now_ns() + AFTER_SIGNAL_MS * CLAIR_NS_PER_MS;
	if (!k->deadline || deadline < k->deadline)
		k->deadline = deadline; /* a second signal does not put it off */
	atomic_store(&k->mount->paused, true);
	if (k->own_mount)
		detach(k);
	let_go(k);
	end_session(k);
}

static void take_signal(struct clair_keeper *k)
{
	struct signalfd_siginfo info;

	if (read(k->signals, &info, sizeof info) != sizeof info)
		return;
	log_info("signal %u: unmounting", info.ssi_signo);
	give_up(k);
}

static void *keeper_thread(void *arg)
{
	struct clair_keeper *k = arg;
	struct pollfd p[4] = { { k->wake, POLLIN, 0 },
			       { k->signals, POLLIN, 0 },
			       { k->lifeline, POLLIN, 0 },
			       { k->table, POLLPRI, 0 } };

	while (!atomic_load(&k->stop)) {
		int wait = -1;
		if (k->deadline) {
			int64_t left = (k->deadline - clair_now_ns()) / CLAIR_NS_PER_MS;
			if (left <= 0) {
				log_warning("the source hangs: ending without it");
				if (k->own_mount)
					detach(k);
				_exit(0);
			}
			wait = (int)left;
			/* A loop that was not interrupted yet. */
			if (!atomic_load(&k->ending)) {
				end_session(k);
				wait = wait > 20 ? 20 : wait;
			}
		}
		if (k->gone && !k->deadline) {
			if (fuse_session_exited(k->mount->session))
				k->deadline = clair_now_ns() + LAST_MS * CLAIR_NS_PER_MS;
			wait = LOOK_MS;
		}
		if (poll(p, 4, wait) <= 0)
			continue;
		if (p[0].revents) {
			uint64_t n;
			if (read(k->wake, &n, sizeof n) < 0)
				n = 0;
			if (atomic_exchange(&k->job_ends, false))
				give_up(k);
			if (atomic_load(&k->ending) && !k->deadline)
				k->deadline = clair_now_ns() + LAST_MS * CLAIR_NS_PER_MS;
		}
		if (p[1].revents)
			take_signal(k);
		if (p[2].revents) {
			let_go(k);
			k->gone = true;
			p[2].fd = -1;
		}
		if (p[3].revents && !in_mount_table(k)) {
			let_go(k);
			k->gone = true;
			p[3].fd = -1;
		}
	}
	return NULL;
}

/* Where the device of a mount in another namespace is not in the table, the root that is held
 * tells it, from what the kernel knows: nobody serves yet. */
static void start_guardian(struct clair_keeper *k)
{
	struct statx st;

	if (!k->own_mount) {
		if (statx(atomic_load(&k->mount->root_fd), "",
			  AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MODE, &st) < 0)
			return;
		k->minor = st.stx_dev_minor;
	}
	k->guardian = clair_guardian_start(k->minor);
	if (k->guardian < 0)
		log_debug("no guardian: %s", strerror(-k->guardian));
}

int clair_keeper_start(struct clair_mount *mount, int lifeline, bool own_mount,
		       struct clair_keeper **out)
{
	struct clair_keeper *k = calloc(1, sizeof *k);
	struct sigaction action = { .sa_handler = nothing };
	sigset_t set;

	if (!k)
		return -ENOMEM;
	k->mount = mount;
	k->main = pthread_self();
	k->lifeline = lifeline;
	k->own_mount = own_mount;
	k->table = -1;
	if (own_mount) {
		k->table = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
		find_device(mount->mountpoint, &k->major, &k->minor);
	}
	start_guardian(k);
	sigaction(SIGUSR2, &action, NULL);
	clair_keeper_signals(&set);
	k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	k->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = k->signals < 0 || k->wake < 0 ? -errno : 0;
	if (r == 0)
		r = -pthread_create(&k->thread, NULL, keeper_thread, k);
	if (r < 0) {
		clair_guardian_stop(k->guardian);
		free(k);
		return r;
	}
	*out = k;
	return 0;
}

static void wake(struct clair_keeper *k)
{
	uint64_t one = 1;

	if (write(k->wake, &one, sizeof one) < 0)
		log_debug("the keeper is awake already");
}

void clair_keeper_ending(struct clair_keeper *k)
{
	if (!k)
		return;
	atomic_store(&k->ending, true);
	wake(k);
}

void clair_keeper_unmount(struct clair_keeper *k)
{
	let_go(k);
	detach(k);
}

void clair_keeper_job_ends(struct clair_mount *mount)
{
	struct clair_keeper *k = atomic_load(&mount->keeper);

	if (!k)
		kill(getpid(), SIGTERM);
	else if (k->own_mount) {
		atomic_store(&k->job_ends, true);
		wake(k);
	}
}

void clair_keeper_stop(struct clair_keeper *k)
{
	if (!k)
		return;
	atomic_store(&k->stop, true);
	wake(k);
	pthread_join(k->thread, NULL);
	clair_guardian_stop(k->guardian);
	close(k->signals);
	close(k->wake);
	if (k->table >= 0)
		close(k->table);
	if (k->lifeline >= 0)
		close(k->lifeline);
	free(k);
}
