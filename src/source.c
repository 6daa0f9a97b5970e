/* SPDX-License-Identifier: BSD-3-Clause */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"

#define ALIGN 4096u
#define TRIES 4
#define FILES_NS (10 * CLAIR_NS_PER_S) /* that an open waits for a descriptor */
#define DROP_AT_ONCE (1 << 20) /* bytes */
#define PATH_ROOM 8192

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

struct clair_source {
	int root;
	const struct clair_catalog *catalog;
	struct clair_stats *stats;
	/* What the source's file system was found not to have. */
	atomic_bool no_direct, no_cachestat, no_nowait;
};

struct clair_source_file {
	struct clair_source *source;
	uint32_t id;
	int fd;
	uint64_t size;   /* when it was opened */
	atomic_bool behind; /* pages that our reads brought in: dropped at close */
	pthread_mutex_t lock;
	/* Under lock. The mode is the descriptor's, so of all who read: O_DIRECT is set only
	 * when nobody else reads, and cleared at any time. */
	bool direct;
	unsigned reading;
};

/* Linux 6.5; a layout of the kernel's. */
struct cachestat_range {
	uint64_t offset, length;
};
struct cachestat_counts {
	uint64_t cache, dirty, writeback, evicted, recently_evicted;
};

int clair_source_new(int root_fd, const struct clair_catalog *catalog,
		     struct clair_stats *stats, struct clair_source **out)
{
	struct clair_source *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->root = root_fd;
	s->catalog = catalog;
	s->stats = stats;
	*out = s;
	return 0;
}

void clair_source_free(struct clair_source *s)
{
	if (!s)
		return;
	close(s->root);
	free(s);
}

int clair_source_root(const struct clair_source *s)
{
	return s->root;
}

static bool worth_retry(int error)
{
	return error == EIO || error == ESTALE || error == ETIMEDOUT || error == EINTR ||
	       error == EAGAIN;
}

/* Waits before try number TRY (1, 2, …): 4, 32, 256 ms. */
static void pause_before(int try)
{
	int64_t ns = (CLAIR_NS_PER_MS / 2) << (3 * try);
	struct timespec t = { .tv_sec = ns / CLAIR_NS_PER_S, .tv_nsec = ns % CLAIR_NS_PER_S };

	nanosleep(&t, NULL);
}

static int open_beneath(struct clair_source *s, uint32_t id, uint64_t flags)
{
	char path[PATH_ROOM];
	struct open_how how = { .flags = flags | O_CLOEXEC,
				.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH };

	size_t n = clair_catalog_path(s->catalog, id, path, sizeof path);
	if (n >= sizeof path)
		return -ENAMETOOLONG;
	long fd = syscall(SYS_openat2, s->root, n ? path : ".", &how, sizeof how);
	return fd < 0 ? -errno : (int)fd;
}

/* Without a free descriptor: others' reads end and give one back. */
static int open_patiently(struct clair_source *s, uint32_t id, uint64_t flags)
{
	struct timespec pause = { .tv_nsec = 10 * CLAIR_NS_PER_MS };
	int64_t until = 0;

	for (;;) {
		int fd = open_beneath(s, id, flags);
		if (fd != -EMFILE && fd != -ENFILE)
			return fd;
		int64_t now = clair_now_ns();
		until = until ? until : now + FILES_NS;
		if (now > until)
			return fd;
		nanosleep(&pause, NULL);
	}
}

static int open_retried(struct clair_source *s, uint32_t id, uint64_t flags, bool count)
{
	int fd = -EIO;

	for (int try = 0; try < TRIES; try++) {
		if (try)
			pause_before(try);
		if (count)
			clair_count(&s->stats->pfs_opens, 1);
		fd = open_patiently(s, id, flags);
		if (fd >= 0 || !worth_retry(-fd))
			break;
		clair_count(&s->stats->pfs_errors, 1);
	}
	/* -ESTALE means "changed" to our callers. */
	return fd == -ESTALE ? -EIO : fd;
}

static bool same(const struct clair_source *s, uint32_t id, uint64_t size, int64_t mtime_ns)
{
	const struct clair_entry *e = clair_catalog_entry(s->catalog, id);

	return size == e->size && mtime_ns == e->mtime_ns;
}

static bool same_statx(const struct clair_source *s, uint32_t id, const struct statx *st)
{
	return same(s, id, st->stx_size,
		    st->stx_mtime.tv_sec * CLAIR_NS_PER_S + st->stx_mtime.tv_nsec);
}

static int open_file(struct clair_source *s, uint32_t id, bool check,
		     struct clair_source_file **out)
{
	struct statx st;
	autoclose int fd = open_retried(s, id, O_RDONLY | O_NONBLOCK, true);

	if (fd < 0)
		return fd;
	/* The lookup and the open have just brought the attributes: not another trip. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		  STATX_TYPE | STATX_SIZE | STATX_MTIME, &st) < 0)
		return -EIO;
	if (!S_ISREG(st.stx_mode) ||
	    (check && !same_statx(s, id, &st)))
		return -ESTALE;
	struct clair_source_file *f = calloc(1, sizeof *f);
	if (!f)
		return -ENOMEM;
	f->source = s;
	f->id = id;
	f->fd = take_fd(fd);
	f->size = st.stx_size;
	pthread_mutex_init(&f->lock, NULL);
	clair_count(&s->stats->pfs.samples, 1);
	*out = f;
	return 0;
}

int clair_source_open(struct clair_source *s, uint32_t id, struct clair_source_file **out)
{
	return open_file(s, id, true, out);
}

int clair_source_open_changed(struct clair_source *s, uint32_t id,
			      struct clair_source_file **out)
{
	return open_file(s, id, false, out);
}

void clair_source_close(struct clair_source_file *f)
{
	if (!f)
		return;
	if (f->behind)
		posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
	close(f->fd);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

int clair_source_recheck(struct clair_source_file *f)
{
	struct statx st;

	if (statx(f->fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE | STATX_MTIME | STATX_NLINK,
		  &st) < 0)
		return -errno;
	return st.stx_nlink && same_statx(f->source, f->id, &st) ? 0 : -ESTALE;
}

int clair_source_unchanged(struct clair_source_file *f)
{
	struct statx st;

	if (statx(f->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE | STATX_MTIME,
		  &st) < 0)
		return 0;
	return same_statx(f->source, f->id, &st) ? 0 : -ESTALE;
}

int clair_source_stat(struct clair_source *s, uint32_t id, struct stat *st)
{
	autoclose int fd = open_retried(s, id, O_PATH | O_NOFOLLOW, false);

	if (fd < 0)
		return fd;
	return fstat(fd, st) < 0 ? -errno : 0;
}

int clair_source_check(struct clair_source *s, uint32_t id)
{
	struct stat st;

	int r = clair_source_stat(s, id, &st);
	if (r < 0)
		return r;
	return same(s, id, (uint64_t)st.st_size,
		    st.st_mtim.tv_sec * CLAIR_NS_PER_S + st.st_mtim.tv_nsec) ?
		       0 :
		       -ESTALE;
}

/* Whether [OFFSET, OFFSET + SIZE) is in memory already, as far as that can be asked. */
static bool in_memory(struct clair_source_file *f, size_t size, uint64_t offset)
{
	struct clair_source *s = f->source;
	uint64_t end = f->size;
	struct cachestat_range range = { offset, size };
	struct cachestat_counts counts;

	if (atomic_load_explicit(&s->no_cachestat, memory_order_relaxed))
		return false;
	if (offset >= end)
		return false;
	if (range.length > end - offset)
		range.length = end - offset;
	if (syscall(SYS_cachestat, f->fd, &range, &counts, 0) < 0) {
		/* EPERM is a matter of the file's owner. */
		if (errno != EPERM)
			atomic_store_explicit(&s->no_cachestat, true, memory_order_relaxed);
		return false;
	}
	return counts.cache * ALIGN + ALIGN > range.length + offset % ALIGN &&
	       counts.cache >= (range.length + ALIGN - 1) / ALIGN;
}

/* lock */
static void set_direct(struct clair_source_file *f, bool want)
{
	struct clair_source *s = f->source;

	if (want == f->direct || (want && f->reading))
		return;
	if (want && atomic_load_explicit(&s->no_direct, memory_order_relaxed))
		return;
	if (!want && f->reading)
		atomic_store(&f->behind, true); /* the others' reads leave pages, too */
	if (fcntl(f->fd, F_SETFL, O_NONBLOCK | (want ? O_DIRECT : 0)) == 0)
		f->direct = want;
	else if (want)
		atomic_store_explicit(&s->no_direct, true, memory_order_relaxed);
}

/* A read begins, by O_DIRECT if WANT and it can be: whether it is. */
static bool begin_read(struct clair_source_file *f, bool want)
{
	autolock(&f->lock);
	set_direct(f, want);
	f->reading++;
	return f->direct;
}

static void end_read(struct clair_source_file *f)
{
	autolock(&f->lock);
	f->reading--;
}

/* What is in memory is read at once: bytes read, 0 when nothing was. */
static ssize_t read_now(struct clair_source_file *f, void *buffer, size_t size,
			uint64_t offset)
{
	struct clair_source *s = f->source;
	struct iovec v = { buffer, size };

	if (in_memory(f, size, offset)) {
		begin_read(f, false);
		ssize_t n = pread(f->fd, buffer, size, (off_t)offset);
		end_read(f);
		return n > 0 ? n : 0;
	}
	if (!atomic_load_explicit(&s->no_cachestat, memory_order_relaxed) ||
	    atomic_load_explicit(&s->no_nowait, memory_order_relaxed))
		return 0;
	begin_read(f, false);
	ssize_t n = preadv2(f->fd, &v, 1, (off_t)offset, RWF_NOWAIT);
	end_read(f);
	if (n < 0 && errno == EOPNOTSUPP)
		atomic_store_explicit(&s->no_nowait, true, memory_order_relaxed);
	if (n == (ssize_t)size)
		return n;
	if (n != 0 && !(n < 0 && errno == EOPNOTSUPP))
		atomic_store(&f->behind, true); /* it started the kernel's read-ahead */
	return n > 0 ? n : 0;
}

/* A handle that the PFS made stale is opened again. */
static void reopen(struct clair_source_file *f)
{
	int fd = open_beneath(f->source, f->id, O_RDONLY | O_NONBLOCK);

	clair_count(&f->source->stats->pfs_opens, 1);
	if (fd < 0)
		return;
	autolock(&f->lock);
	/* The number stays: others may read from it just now. */
	if (dup3(fd, f->fd, O_CLOEXEC) >= 0)
		f->direct = false;
	close(fd);
}

static ssize_t read_once(struct clair_source_file *f, void *buffer, size_t size,
			 uint64_t offset)
{
	bool aligned = !((uintptr_t)buffer % ALIGN) && !(offset % ALIGN) && !(size % ALIGN);

	bool direct = begin_read(f, aligned);
	ssize_t n = pread(f->fd, buffer, size, (off_t)offset);
	int error = n < 0 ? errno : 0;
	end_read(f);
	if (error == EINVAL && direct) {
		atomic_store_explicit(&f->source->no_direct, true, memory_order_relaxed);
		begin_read(f, direct = false);
		n = pread(f->fd, buffer, size, (off_t)offset);
		error = n < 0 ? errno : 0;
		end_read(f);
	}
	if (!direct) {
		atomic_store(&f->behind, true);
		/* A large file stays open for long. */
		if (n >= DROP_AT_ONCE)
			posix_fadvise(f->fd, (off_t)offset, n, POSIX_FADV_DONTNEED);
	}
	return n < 0 ? -error : n;
}

ssize_t clair_source_read(struct clair_source_file *f, void *buffer, size_t size,
			  uint64_t offset)
{
	struct clair_stats *stats = f->source->stats;
	int try = 0;
	size_t done = (size_t)read_now(f, buffer, size, offset);

	clair_count(&stats->pfs.bytes, done);
	while (done < size && !(done && offset + done == f->size)) {
		/* Aligned again after an odd piece, for O_DIRECT. */
		ssize_t n = read_once(f, (char *)buffer + done, size - done, offset + done);
		if (n == 0)
			break;
		if (n > 0) {
			clair_count(&stats->pfs.bytes, (uint64_t)n);
			done += (size_t)n;
			continue;
		}
		if (n != -EINTR)
			clair_count(&stats->pfs_errors, 1);
		if (!worth_retry((int)-n) || ++try >= TRIES)
			return n == -ESTALE ? -EIO : n;
		pause_before(try);
		if (n == -ESTALE)
			reopen(f);
	}
	return (ssize_t)done;
}
