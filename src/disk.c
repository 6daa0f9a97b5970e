/* SPDX-License-Identifier: BSD-3-Clause */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"
#include "disk_internal.h"
#include "log.h"
#include "words.h"

/* Bytes that may wait in memory to be written, before they are written and dropped. */
#define FLUSH_BYTES (8ull << 20)
/* Errors in a row after which the tier takes no more samples. */
#define MANY_ERRORS 5
/* The file system is asked for its free space every so many bytes. */
#define FREE_EVERY (16ull << 20)

/* A sample takes its bytes and a record, and a second one if it is ever forgotten. */
static uint64_t cost_of(uint64_t size)
{
	return size + 2 * RECORD;
}

/* --- opening ---------------------------------------------------------------------------- */

int clair_disk_add_slot(struct clair_disk *d, uint32_t id, const struct slot *slot)
{
	if (d->slot_count == d->slot_room) {
		uint32_t room = d->slot_room ? d->slot_room * 2 : 256;
		struct slot *slots = realloc(d->slots, room * sizeof *slots);
		if (!slots)
			return -ENOMEM;
		d->slots = slots;
		d->slot_room = room;
	}
	d->slots[d->slot_count] = *slot;
	atomic_store(&d->slot_of[id].at, d->slot_count++);
	return 0;
}

/* Whether the segment has the record's bytes: it may be gone or cut. */
static bool is_there(const struct clair_disk *d, const struct clair_disk_record *record)
{
	struct stat st;

	return record->segment < d->segment_count && d->segments[record->segment] >= 0 &&
	       fstat(d->segments[record->segment], &st) == 0 &&
	       record->offset <= (uint64_t)st.st_size &&
	       record->size <= (uint64_t)st.st_size - record->offset &&
	       clair_disk_record_bytes(record) <= (uint64_t)st.st_size - record->offset;
}

static int adopt(struct clair_disk *d, const struct clair_disk_record *records, size_t count)
{
	size_t mask;
	autofree size_t *table = clair_disk_hash_records(records, count, &mask);
	int r = 0;

	if (!table)
		return -ENOMEM;
	for (uint32_t id = 0; r == 0 && id < clair_catalog_count(d->catalog); id++) {
		const struct clair_entry *e = clair_catalog_entry(d->catalog, id);
		uint64_t key[2];

		if (e->kind != CLAIR_FILE)
			continue;
		clair_disk_key(d->catalog, id, key);
		size_t at = key[0] & mask;
		while (table[at] && memcmp(records[table[at] - 1].key, key, sizeof key))
			at = (at + 1) & mask;
		const struct clair_disk_record *record =
			table[at] ? &records[table[at] - 1] : NULL;
		if (!record || record->size != e->size || !is_there(d, record))
			continue;
		struct slot slot = { .segment = record->segment, .offset = record->offset,
				     .pieces = record->magic == CLAIR_DISK_MAGIC_PIECES,
				     .hash = record->hash };
		r = clair_disk_add_slot(d, id, &slot);
		d->samples++;
		d->bytes += e->size;
	}
	return r;
}

/* The bytes of an opened segment. What lies behind its last record, of a sample that was
 * being written when the mount died, is cut off: it may be large. */
static uint64_t cut_segment(int fd, uint64_t end)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return 0;
	if ((uint64_t)st.st_size > end && ftruncate(fd, (off_t)end) == 0)
		return end;
	return (uint64_t)st.st_size;
}

/* Opens the segments that RECORDS speak of; others, of a log that was lost, are removed. */
static int open_segments(struct clair_disk *d, const struct clair_disk_record *records,
			 size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (records[i].segment != NONE && records[i].segment >= d->segment_count)
			d->segment_count = records[i].segment + 1;
	d->segments = malloc((d->segment_count + 1ul) * sizeof *d->segments);
	autofree uint64_t *ends = calloc(d->segment_count + 1ul, sizeof *ends);
	if (!d->segments || !ends) {
		d->segment_count = 0;
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t end = records[i].offset + clair_disk_record_bytes(&records[i]);
		if (records[i].segment != NONE && end > ends[records[i].segment])
			ends[records[i].segment] = end;
	}
	d->file_bytes = count * sizeof *records;
	for (uint32_t i = 0; i < d->segment_count; i++) {
		d->segments[i] = clair_disk_open_segment(d->dir, i, O_RDWR);
		if (d->segments[i] >= 0) {
			d->tail = cut_segment(d->segments[i], ends[i]);
			d->file_bytes += d->tail;
		}
	}
	/* A segment that cannot be opened is not written to either. */
	if (d->segment_count && d->segments[d->segment_count - 1] < 0)
		d->tail = CLAIR_SEGMENT_BYTES;
	clair_disk_remove_segments(d->dir, d->segment_count);
	return 0;
}

/* Bytes of the samples that are there and are not this catalog's: the last record of each
 * key counts. */
static uint64_t strange_bytes(const struct clair_disk *d,
			      const struct clair_disk_record *records, size_t count)
{
	size_t mask;
	autofree size_t *table = clair_disk_hash_records(records, count, &mask);
	uint64_t live = 0;

	for (size_t i = 0; table && i <= mask; i++)
		if (table[i] && is_there(d, &records[table[i] - 1]))
			live += records[table[i] - 1].size;
	return live > d->bytes ? live - d->bytes : 0;
}

/* Makes the folder empty. */
static void drop_all(struct clair_disk *d)
{
	for (uint32_t id = 0; id < clair_catalog_count(d->catalog); id++)
		atomic_store(&d->slot_of[id].at, NONE);
	for (uint32_t i = 0; i < d->segment_count; i++)
		if (d->segments[i] >= 0)
			close(d->segments[i]);
	d->slot_count = d->segment_count = 0;
	d->samples = d->bytes = d->file_bytes = d->tail = 0;
	clair_disk_wipe(d->dir);
}

static int load(struct clair_disk *d)
{
	autofree struct clair_disk_record *records = NULL;
	size_t count = 0;
	bool complete = true;

	int r = clair_disk_read_index(d->dir, &records, &count, &complete);
	if (r < 0 && r != -ENOENT)
		return r;
	r = open_segments(d, records, count);
	if (r == 0 && count)
		r = adopt(d, records, count);
	if (r < 0)
		return r;
	/* Other data, mostly, or more than it may: all of it goes, so that the room is ours. */
	bool other = count && strange_bytes(d, records, count) > d->bytes;
	if (other || d->file_bytes > d->cap) {
		log_info("%s: holds %s, which is dropped", d->path,
			 other ? "other data" : "more than it may");
		drop_all(d);
		count = 0;
	}
	d->index = openat(d->dir, "index", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->index < 0)
		return -errno;
	/* What follows the last valid record is torn. */
	if (ftruncate(d->index, (off_t)(count * sizeof *records)) < 0 ||
	    lseek(d->index, 0, SEEK_END) < 0)
		return -errno;
	return 0;
}

static int open_folder(struct clair_disk *d, char **error)
{
	if (mkdir(d->path, 0700) < 0 && errno != EEXIST)
		return clair_bad(error, "cache=%s: cannot be made: %s", d->path,
				 strerror(errno));
	d->dir = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->dir < 0)
		return clair_bad(error, "cache=%s: %s; it must be a folder of yours",
				 d->path, strerror(errno));
	d->lock_fd = openat(d->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock_fd < 0)
		return clair_bad(error, "cache=%s: cannot be written: %s", d->path,
				 strerror(errno));
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		clair_bad(error, "cache=%s: another mount uses it; give each a folder of its "
				 "own",
			  d->path);
		return -EBUSY;
	}
	return 0;
}

int clair_disk_open(const struct clair_disk_config *config,
		    const struct clair_catalog *catalog, struct clair_disk **out,
		    char **error)
{
	uint32_t count = clair_catalog_count(catalog);
	struct clair_disk *d = calloc(1, sizeof *d);
	int r = -ENOMEM;

	if (!d)
		return r;
	pthread_mutex_init(&d->lock, NULL);
	d->dir = d->lock_fd = d->index = -1;
	d->catalog = catalog;
	d->cap = config->bytes;
	d->floor = config->free_bytes;
	d->since_free = FREE_EVERY;
	d->path = strdup(config->path);
	d->slot_of = malloc(sizeof *d->slot_of * count);
	if (d->path && d->slot_of) {
		for (uint32_t id = 0; id < count; id++)
			atomic_init(&d->slot_of[id].at, NONE);
		r = open_folder(d, error);
	}
	if (r == 0) {
		r = load(d);
		if (r < 0)
			clair_bad(error, "cache=%s: cannot be read: %s", d->path,
				  strerror(-r));
	}
	if (r < 0) {
		clair_disk_close(d);
		return r;
	}
	*out = d;
	return 0;
}

void clair_disk_close(struct clair_disk *d)
{
	if (!d)
		return;
	for (uint32_t i = 0; d->segments && i < d->segment_count; i++)
		if (d->segments[i] >= 0)
			close(d->segments[i]);
	if (d->index >= 0)
		close(d->index);
	if (d->lock_fd >= 0)
		close(d->lock_fd);
	if (d->dir >= 0)
		close(d->dir);
	while (d->tables) {
		struct piece_table *t = d->tables;
		d->tables = t->next;
		free(t);
	}
	pthread_mutex_destroy(&d->lock);
	free(d->segments);
	free(d->slots);
	free(d->slot_of);
	free(d->path);
	free(d);
}

/* --- room -------------------------------------------------------------------------------- */

bool clair_disk_has(const struct clair_disk *d, uint32_t id)
{
	return atomic_load_explicit(&d->slot_of[id].at, memory_order_acquire) != NONE;
}

static bool above_floor(struct clair_disk *d, uint64_t size)
{
	struct statvfs st;

	if (d->since_free >= FREE_EVERY || d->free_bytes < d->floor + 2 * FREE_EVERY) {
		if (fstatvfs(d->dir, &st) < 0)
			return false;
		d->free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
		d->since_free = 0;
	}
	return d->free_bytes >= d->floor + size + d->since_free + d->claimed + d->unwritten;
}

int clair_disk_claim(struct clair_disk *d, uint64_t size)
{
	uint64_t cost = cost_of(size);

	autolock(&d->lock);
	if (d->broken)
		return -ENOSPC;
	d->full = d->file_bytes + d->samples * RECORD + d->claimed + cost > d->cap ||
		  !above_floor(d, cost);
	if (d->full)
		return -ENOSPC;
	d->claimed += cost;
	return 0;
}

void clair_disk_unclaim(struct clair_disk *d, uint64_t size)
{
	autolock(&d->lock);
	d->claimed -= cost_of(size);
}

/* --- writing ----------------------------------------------------------------------------- */

int clair_disk_write_at(int fd, const char *p, size_t size, uint64_t offset)
{
	while (size) {
		ssize_t n = pwrite(fd, p, size, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

/* A place for SIZE bytes at the end of the last segment, or in a new one. lock */
int clair_disk_place(struct clair_disk *d, uint64_t size, struct slot *slot)
{
	if (!d->segment_count || d->tail + size > CLAIR_SEGMENT_BYTES) {
		int *longer = realloc(d->segments, (d->segment_count + 1ul) * sizeof *longer);
		if (!longer)
			return -ENOMEM;
		d->segments = longer;
		int fd = clair_disk_open_segment(d->dir, d->segment_count,
						 O_RDWR | O_CREAT | O_TRUNC);
		if (fd < 0)
			return fd;
		d->segments[d->segment_count++] = fd;
		d->tail = 0;
	}
	slot->segment = d->segment_count - 1;
	slot->offset = d->tail;
	d->tail += size;
	d->file_bytes += size;
	return d->segments[slot->segment];
}

void clair_disk_failed(struct clair_disk *d, int r)
{
	d->errors++;
	if (++d->errors_in_a_row < MANY_ERRORS || d->broken)
		return;
	d->broken = true;
	log_warning("%s: %s, %u times in a row: it takes no more samples", d->path,
		    strerror(-r), MANY_ERRORS);
}

int clair_disk_append(struct clair_disk *d, uint32_t id, const struct slot *slot,
		      uint64_t size)
{
	struct clair_disk_record record = { .magic = slot->pieces ? CLAIR_DISK_MAGIC_PIECES :
									    CLAIR_DISK_MAGIC,
					    .segment = slot->segment,
					    .offset = slot->offset,
					    .size = size,
					    .hash = slot->hash };

	clair_disk_key(d->catalog, id, record.key);
	record.checksum = clair_disk_record_checksum(&record);
	/* One write, under the lock: records do not mix. A part of one would end the log for
	 * the next mount, so it is cut off again. */
	off_t end = lseek(d->index, 0, SEEK_CUR);
	ssize_t n = write(d->index, &record, sizeof record);
	if (n == (ssize_t)sizeof record) {
		d->file_bytes += RECORD;
		return 0;
	}
	int r = n < 0 ? -errno : -ENOSPC;
	if (end < 0 || ftruncate(d->index, end) < 0 || lseek(d->index, end, SEEK_SET) < 0)
		d->broken = true;
	return r;
}

/* Written pages leave memory in batches; the lock is not held. */
void clair_disk_flush_behind(struct clair_disk *d, int fd, uint64_t size)
{
	pthread_mutex_lock(&d->lock);
	d->unflushed += size;
	bool flush = d->unflushed >= FLUSH_BYTES;
	if (flush)
		d->unflushed = 0;
	pthread_mutex_unlock(&d->lock);
	if (!flush)
		return;
	sync_file_range(fd, 0, 0,
			SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
				SYNC_FILE_RANGE_WAIT_AFTER);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

int clair_disk_add(struct clair_disk *d, uint32_t id, const void *data, uint64_t size,
		   uint64_t hash)
{
	struct slot slot = { .hash = hash };

	pthread_mutex_lock(&d->lock);
	d->claimed -= cost_of(size);
	int fd = clair_disk_has(d, id) ? -EEXIST : clair_disk_place(d, size, &slot);
	pthread_mutex_unlock(&d->lock);
	if (fd == -EEXIST)
		return fd;
	int r = fd < 0 ? fd : clair_disk_write_at(fd, data, size, slot.offset);
	if (r == 0)
		clair_disk_flush_behind(d, fd, size);
	autolock(&d->lock);
	if (r == 0 && clair_disk_has(d, id))
		return -EEXIST; /* two at once: the second one's bytes are lost room */
	if (r == 0)
		r = clair_disk_append(d, id, &slot, size);
	if (r == 0)
		r = clair_disk_add_slot(d, id, &slot);
	if (r < 0) {
		clair_disk_failed(d, r);
		return r;
	}
	d->since_free += cost_of(size);
	d->samples++;
	d->bytes += size;
	d->errors_in_a_row = 0;
	return 0;
}

void clair_disk_forget(struct clair_disk *d, uint32_t id)
{
	struct slot gone = { .segment = NONE };

	autolock(&d->lock);
	if (!clair_disk_has(d, id))
		return;
	atomic_store(&d->slot_of[id].at, NONE);
	d->samples--;
	d->bytes -= clair_catalog_entry(d->catalog, id)->size;
	/* The log tells the next mount. */
	if (clair_disk_append(d, id, &gone, clair_catalog_entry(d->catalog, id)->size) < 0)
		d->errors++;
}

void clair_disk_usage(struct clair_disk *d, struct clair_disk_usage *usage)
{
	autolock(&d->lock);
	uint64_t average = d->samples ? d->bytes / d->samples : 100000;
	/* Of what is left, records take their part. */
	uint64_t used = d->file_bytes + d->samples * RECORD;
	uint64_t left = d->cap > used ? d->cap - used : 0;
	left = (uint64_t)((double)left * (double)average / (double)cost_of(average));
	*usage = (struct clair_disk_usage){ .samples = d->samples,
					    .bytes = d->bytes,
					    .capacity = d->bytes +
							(d->full || d->broken ? 0 : left),
					    .errors = d->errors,
					    .damaged = d->damaged,
					    .full = d->full || d->broken };
}

const char *clair_disk_path(const struct clair_disk *d)
{
	return d->path;
}
