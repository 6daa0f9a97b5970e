/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a tier from end to end, without a catalog. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"
#include "disk_internal.h"
#include "words.h"

#define BUFFER (4u << 20)

/* Reads the SIZE bytes at OFFSET into the hash, in parts. */
static bool hash_range(int fd, XXH3_state_t *state, uint64_t offset, uint64_t size,
		       char *buffer, uint64_t *hash)
{
	XXH3_64bits_reset(state);
	while (size) {
		size_t part = size < BUFFER ? (size_t)size : BUFFER;
		ssize_t n = pread(fd, buffer, part, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		XXH3_64bits_update(state, buffer, (size_t)n);
		offset += (uint64_t)n;
		size -= (uint64_t)n;
	}
	*hash = XXH3_64bits_digest(state);
	return true;
}

/* The same of a sample with a table: the table against the record, the pieces against it. */
static bool has_its_pieces(int fd, XXH3_state_t *state,
			   const struct clair_disk_record *record, char *buffer)
{
	uint32_t count = clair_disk_piece_count(record->size);
	autofree uint64_t *table = malloc((count + 1ul) * sizeof *table);
	uint64_t hash;

	if (!table ||
	    clair_disk_read_at(fd, (char *)table, count * sizeof *table,
			       record->offset + record->size) < 0 ||
	    XXH3_64bits(table, count * sizeof *table) != record->hash)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (!hash_range(fd, state, record->offset + (uint64_t)i * CLAIR_DISK_PIECE,
				clair_disk_piece_size(record->size, i), buffer, &hash) ||
		    hash != table[i])
			return false;
	return true;
}

/* Whether the bytes have the record's hash; in parts, since a sample may be large. */
static bool is_whole(int fd, const struct clair_disk_record *record, char *buffer)
{
	XXH3_state_t *state = XXH3_createState();
	uint64_t hash;
	bool whole;

	if (!state || fd < 0)
		whole = false;
	else if (record->magic == CLAIR_DISK_MAGIC_PIECES)
		whole = has_its_pieces(fd, state, record, buffer);
	else
		whole = hash_range(fd, state, record->offset, record->size, buffer, &hash) &&
			hash == record->hash;
	XXH3_freeState(state);
	return whole;
}

static int by_key(const void *a, const void *b, void *arg)
{
	const struct clair_disk_record *list = arg;
	size_t i = *(const size_t *)a, k = *(const size_t *)b;
	int order = memcmp(list[i].key, list[k].key, sizeof list[i].key);

	return order ? order : i < k ? -1 : i > k;
}

static int append_gone(int dir, const struct clair_disk_record *record)
{
	struct clair_disk_record gone = *record;
	autoclose int fd = openat(dir, "index", O_WRONLY | O_APPEND | O_CLOEXEC);

	gone.segment = UINT32_MAX;
	gone.checksum = clair_disk_record_checksum(&gone);
	return fd >= 0 && write(fd, &gone, sizeof gone) == (ssize_t)sizeof gone ? 0 : -errno;
}

static int cut_index(int dir, size_t size)
{
	autoclose int fd = openat(dir, "index", O_WRONLY | O_CLOEXEC);

	return fd >= 0 && ftruncate(fd, (off_t)size) == 0 ? 0 : -errno;
}

static int check_records(int dir, struct clair_disk_record *records, size_t count,
			 bool repair, FILE *report, struct clair_disk_check *check)
{
	autofree size_t *order = malloc((count + 1) * sizeof *order);
	autofree char *buffer = malloc(BUFFER);
	int r = 0;

	if (!order || !buffer)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		order[i] = i;
	qsort_r(order, count, sizeof *order, by_key, records);
	for (size_t i = 0; i < count && r == 0; i++) {
		const struct clair_disk_record *record = &records[order[i]];

		/* The last record of a key is what counts. */
		if (i + 1 < count && !memcmp(records[order[i + 1]].key, record->key,
					     sizeof record->key))
			continue;
		if (record->segment == UINT32_MAX)
			continue;
		autoclose int fd = clair_disk_open_segment(dir, record->segment, O_RDONLY);
		check->samples++;
		check->bytes += record->size;
		if (is_whole(fd, record, buffer))
			continue;
		check->damaged++;
		fprintf(report, "damaged: %llu bytes at %llu of segment-%06u%s\n",
			(unsigned long long)record->size,
			(unsigned long long)record->offset, record->segment,
			repair ? ": forgotten" : "");
		if (repair)
			r = append_gone(dir, record);
	}
	return r;
}

int clair_disk_verify(const char *path, bool repair, FILE *report,
		      struct clair_disk_check *out, char **error)
{
	struct clair_disk_check check = { .complete = true };
	autofree struct clair_disk_record *records = NULL;
	size_t count = 0;
	autoclose int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return clair_bad(error, "%s: %s; give the folder of a cache", path,
				 strerror(errno));
	autoclose int lock = openat(dir, "lock", O_RDWR | O_CLOEXEC);
	if (lock < 0)
		return clair_bad(error, "%s: is not a cache of clairfs", path);
	if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
		clair_bad(error, "%s: a mount uses it; unmount first", path);
		return -EBUSY;
	}
	int r = clair_disk_read_index(dir, &records, &count, &check.complete);
	if (r == -ENOENT)
		r = 0;
	/* The torn end goes, else the records that follow it would not be read. */
	if (r == 0 && !check.complete && repair)
		r = cut_index(dir, count * sizeof *records);
	if (r == 0)
		r = check_records(dir, records, count, repair, report, &check);
	if (r < 0) {
		clair_bad(error, "%s: %s", path, strerror(-r));
		return r;
	}
	*out = check;
	return 0;
}
