/* SPDX-License-Identifier: BSD-3-Clause */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"

#define ALIGN 4096
#define TRIES 4 /* of a PFS call that fails in a way that may pass */

struct clair_source {
	int root_fd;
	const struct clair_catalog *catalog;
	struct clair_stats *stats;
	/* Learnt once: what the source's file system cannot do is not asked again. */
	_Atomic bool no_nowait, no_direct, no_openat2;
};

struct clair_source_file {
	struct clair_source *source;
	int fd;
	bool direct; /* O_DIRECT is set on fd */
};

int clair_source_new(int root_fd, const struct clair_catalog *catalog,
		     struct clair_stats *stats, struct clair_source **out)
{
	struct clair_source *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->root_fd = root_fd;
	s->catalog = catalog;
	s->stats = stats;
	*out = s;
	return 0;
}

void clair_source_free(struct clair_source *s)
{
	if (!s)
		return;
	close(s->root_fd);
	free(s);
}

int clair_source_root(const struct clair_source *s)
{
	return s->root_fd;
}

/* Errors that a parallel file system gives while a server fails over. */
static bool may_pass(int error)
{
	return error == EIO || error == ESTALE || error == ETIMEDOUT || error == EAGAIN ||
	       error == EINTR || error == EREMOTEIO || error == ENOTCONN;
}

/* Waits before try number T (from 1); false when there are no more. */
static bool try_again(int t)
{
	struct timespec pause = { .tv_nsec = 10 * CLAIR_NS_PER_MS << 2 * (t - 1) };

	if (t >= TRIES)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

static int open_beneath(struct clair_source *s, const char *path)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
				.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH };

	if (!atomic_load_explicit(&s->no_openat2, memory_order_relaxed)) {
		int fd = (int)syscall(SYS_openat2, s->root_fd, path, &how, sizeof how);
		if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
			return fd;
		if (errno == ENOSYS)
			atomic_store(&s->no_openat2, true);
	}
	return openat(s->root_fd, path, how.flags);
}

static int open_file(struct clair_source *s, uint32_t id, bool check,
		     struct clair_source_file **out)
{
	const struct clair_entry *e = clair_catalog_entry(s->catalog, id);
	char path[PATH_MAX];
	struct stat st;
	int t = 0;

	if (clair_catalog_path(s->catalog, id, path, sizeof path) >= sizeof path)
		return -ENAMETOOLONG;
	clair_count(&s->stats->pfs_opens, 1);
	autoclose int fd = open_beneath(s, path);
	while (fd < 0 && may_pass(errno)) {
		clair_count(&s->stats->pfs_errors, 1);
		if (!try_again(++t))
			break;
		fd = open_beneath(s, path);
	}
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ESTALE;
	if (check && ((uint64_t)st.st_size != e->size ||
		      st.st_mtim.tv_sec * CLAIR_NS_PER_S + st.st_mtim.tv_nsec != e->mtime_ns))
		return -ESTALE;
	struct clair_source_file *f = malloc(sizeof *f);
	if (!f)
		return -ENOMEM;
	*f = (struct clair_source_file){ .source = s, .fd = take_fd(fd) };
	*out = f;
	return 0;
}

int clair_source_open(struct clair_source *source, uint32_t id,
		      struct clair_source_file **out)
{
	return open_file(source, id, true, out);
}

int clair_source_open_changed(struct clair_source *source, uint32_t id,
			      struct clair_source_file **out)
{
	return open_file(source, id, false, out);
}

void clair_source_close(struct clair_source_file *f)
{
	if (!f)
		return;
	close(f->fd);
	free(f);
}

int clair_source_stat(struct clair_source *s, uint32_t id, struct stat *st)
{
	char path[PATH_MAX];

	if (clair_catalog_path(s->catalog, id, path, sizeof path) >= sizeof path)
		return -ENAMETOOLONG;
	if (fstatat(s->root_fd, id ? path : "", st,
		    AT_SYMLINK_NOFOLLOW | (id ? 0 : AT_EMPTY_PATH)) < 0)
		return -errno;
	return 0;
}

/* All of it from the source's page cache, or nothing. */
static bool read_cached(struct clair_source_file *f, void *buffer, size_t size,
			uint64_t offset)
{
	struct iovec iov = { buffer, size };

	if (atomic_load_explicit(&f->source->no_nowait, memory_order_relaxed) || f->direct)
		return false;
	ssize_t n = preadv2(f->fd, &iov, 1, (off_t)offset, RWF_NOWAIT);
	if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
		atomic_store(&f->source->no_nowait, true);
	return n == (ssize_t)size;
}

static void set_direct(struct clair_source_file *f, bool on)
{
	int flags = fcntl(f->fd, F_GETFL);

	if (f->direct == on)
		return;
	if (flags < 0 ||
	    fcntl(f->fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) < 0) {
		if (on)
			atomic_store(&f->source->no_direct, true);
		return;
	}
	f->direct = on;
}

/* One pread, directly where that works. */
static ssize_t read_once(struct clair_source_file *f, char *buffer, size_t size,
			 uint64_t offset)
{
	bool aligned = (uintptr_t)buffer % ALIGN == 0 && offset % ALIGN == 0;

	set_direct(f, aligned && !atomic_load_explicit(&f->source->no_direct,
						       memory_order_relaxed));
	if (f->direct) {
		size_t whole = (size + ALIGN - 1) / ALIGN * ALIGN;
		ssize_t n = pread(f->fd, buffer, whole, (off_t)offset);
		if (n >= 0)
			return n > (ssize_t)size ? (ssize_t)size : n;
		if (errno != EINVAL && errno != EOPNOTSUPP)
			return -errno;
		atomic_store(&f->source->no_direct, true);
		set_direct(f, false);
	}
	ssize_t n = pread(f->fd, buffer, size, (off_t)offset);
	if (n < 0)
		return -errno;
	posix_fadvise(f->fd, (off_t)(offset & ~(uint64_t)(ALIGN - 1)),
		      (off_t)(n + ALIGN - 1), POSIX_FADV_DONTNEED);
	return n;
}

ssize_t clair_source_read(struct clair_source_file *f, void *buffer, size_t size,
			  uint64_t offset)
{
	struct clair_stats *stats = f->source->stats;
	size_t have = 0;
	int t = 0;

	if (!size)
		return 0;
	if (read_cached(f, buffer, size, offset)) {
		clair_count(&stats->pfs.bytes, size);
		return (ssize_t)size;
	}
	while (have < size) {
		ssize_t n = read_once(f, (char *)buffer + have, size - have, offset + have);
		if (n == -EINTR)
			continue;
		if (n < 0) {
			clair_count(&stats->pfs_errors, 1);
			if (may_pass((int)-n) && try_again(++t))
				continue;
			return n;
		}
		if (n == 0)
			break;
		clair_count(&stats->pfs.bytes, (uint64_t)n);
		have += (size_t)n;
	}
	return (ssize_t)have;
}
