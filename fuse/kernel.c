/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel side of the mount, as the stage sees it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "mount.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

/* Linux 6.5's ABI. */
struct cachestat_range {
	uint64_t offset, length;
};
struct cachestat_counts {
	uint64_t cache, dirty, writeback, evicted, recently_evicted;
};

#define PIPE_BYTES (1 << 20)

/* --- the daemon's own threads ----------------------------------------------------------- */

/* Thread ids that make requests of their own; a small open-addressed table that only
 * grows. Full: the rest count as readers' requests. */
#define OWN 2048
static _Atomic int own_threads[OWN];
static __thread bool registered;

static void register_thread(void)
{
	int tid = (int)syscall(SYS_gettid);

	if (registered)
		return;
	registered = true;
	for (unsigned i = 0, at = (unsigned)tid % OWN; i < OWN; i++, at = (at + 1) % OWN) {
		int empty = 0;
		if (atomic_compare_exchange_strong(&own_threads[at], &empty, tid) ||
		    empty == tid)
			return;
	}
}

bool clair_kernel_is_own(pid_t tid)
{
	for (unsigned i = 0, at = (unsigned)tid % OWN; i < OWN; i++, at = (at + 1) % OWN) {
		int there = atomic_load_explicit(&own_threads[at], memory_order_relaxed);
		if (there == tid)
			return true;
		if (!there)
			return false;
	}
	return false;
}

/* --- opening ------------------------------------------------------------------------------ */

int clair_kernel_clone(const char *mountpoint)
{
#ifdef SYS_open_tree
	/* OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC */
	return (int)syscall(SYS_open_tree, AT_FDCWD, mountpoint, 1 | O_CLOEXEC);
#else
	(void)mountpoint;
	return -1;
#endif
}

/* The mount's root for one call: the one that is held, or opened by its path. */
static int root_of(struct clair_mount *m, int *to_close)
{
	int fd = atomic_load(&m->root_fd);

	*to_close = -1;
	if (atomic_load(&m->paused))
		return -ENOTCONN;
	if (fd >= 0)
		return fd;
	fd = open(m->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*to_close = fd;
	return fd;
}

static int kernel_open(void *self, uint32_t id, bool fresh)
{
	struct clair_mount *m = self;
	char path[PATH_MAX];
	struct stat st;
	int owned;

	register_thread();
	int root = root_of(m, &owned);
	autoclose int to_close = owned;
	if (root < 0)
		return root;
	/* An lstat looks the name up and opens nothing. */
	if (fresh && clair_catalog_path(m->catalog, id, path, sizeof path) < sizeof path &&
	    fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
	    (errno == ENOTCONN || errno == ECONNABORTED))
		return -ENOTCONN;
	snprintf(path, sizeof path, "%s/%x", m->alias, id);
	int fd = openat(root, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	(void)to_close;
	return fd < 0 ? (errno == ECONNABORTED ? -ENOTCONN : -errno) : fd;
}

/* --- pages ------------------------------------------------------------------------------- */

static int kernel_push(void *self, uint32_t id, uint64_t offset, const void *data,
		       size_t size)
{
	struct clair_mount *m = self;
	struct fuse_bufvec buffer = FUSE_BUFVEC_INIT(size);

	buffer.buf[0].mem = (void *)(uintptr_t)data;
	return fuse_lowlevel_notify_store(m->session, clair_ino(id), (off_t)offset, &buffer,
					  0);
}

static void kernel_touch(void *self, int fd, uint64_t size)
{
	static __thread int pipe_fds[2] = { -1, -1 };
	static __thread int null = -1;
	loff_t at = 0;

	(void)self;
	if (null < 0) {
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		if (pipe2(pipe_fds, O_CLOEXEC) < 0)
			pipe_fds[0] = -1;
		else
			fcntl(pipe_fds[1], F_SETPIPE_SZ, PIPE_BYTES);
	}
	/* Splice moves references to the pages: it touches them and copies nothing. */
	while (pipe_fds[0] >= 0 && (uint64_t)at < size) {
		ssize_t n = splice(fd, &at, pipe_fds[1], NULL, PIPE_BYTES, 0);
		if (n <= 0)
			return;
		while (n > 0) {
			ssize_t out = splice(pipe_fds[0], NULL, null, NULL, (size_t)n, 0);
			if (out <= 0) {
				close(pipe_fds[0]);
				close(pipe_fds[1]);
				pipe_fds[0] = -1;
				return;
			}
			n -= out;
		}
	}
}

static int kernel_drop(void *self, int fd, uint64_t offset, uint64_t size)
{
	(void)self;
	return -posix_fadvise(fd, (off_t)offset, (off_t)size, POSIX_FADV_DONTNEED);
}

/* A write lease is given only while nobody else has the file open or mapped. */
static int kernel_unused(void *self, int fd)
{
	(void)self;
	if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) {
		fcntl(fd, F_SETLEASE, F_UNLCK);
		return 1;
	}
	return errno == EAGAIN ? 0 : -errno;
}

static int64_t kernel_resident(void *self, int fd, uint64_t size)
{
	struct cachestat_range range = { 0, size };
	struct cachestat_counts counts;

	(void)self;
	if (syscall(SYS_cachestat, fd, &range, &counts, 0) < 0)
		return -errno;
	return (int64_t)counts.cache * 4096;
}

static void kernel_invalidate(void *self, uint32_t id)
{
	struct clair_mount *m = self;

	fuse_lowlevel_notify_inval_inode(m->session, clair_ino(id), 0, 0);
}

const struct clair_kernel clair_mount_kernel = {
	.open = kernel_open,
	.push = kernel_push,
	.touch = kernel_touch,
	.drop = kernel_drop,
	.unused = kernel_unused,
	.resident = kernel_resident,
	.invalidate = kernel_invalidate,
};
