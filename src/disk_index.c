/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"
#include "disk_internal.h"

uint64_t clair_disk_record_checksum(const struct clair_disk_record *record)
{
	return XXH3_64bits(record, offsetof(struct clair_disk_record, checksum));
}

bool clair_disk_record_valid(const struct clair_disk_record *record)
{
	return (record->magic == CLAIR_DISK_MAGIC ||
		record->magic == CLAIR_DISK_MAGIC_PIECES) &&
	       record->checksum == clair_disk_record_checksum(record);
}

void clair_disk_key(const struct clair_catalog *catalog, uint32_t id, uint64_t key[2])
{
	const struct clair_entry *e = clair_catalog_entry(catalog, id);
	char text[4096 + 16];
	size_t n = clair_catalog_path(catalog, id, text, 4096);

	if (n >= 4096)
		n = 4095; /* size, mtime and the path's first part have to do */
	memcpy(text + n, &e->size, 8);
	memcpy(text + n + 8, &e->mtime_ns, 8);
	XXH128_hash_t hash = XXH3_128bits(text, n + 16);
	key[0] = hash.low64;
	key[1] = hash.high64;
}

int clair_disk_read_index(int dir, struct clair_disk_record **records, size_t *count,
			  bool *complete)
{
	struct stat st;
	autoclose int fd = openat(dir, "index", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	size_t room = (size_t)st.st_size / sizeof **records, n = 0;
	autofree struct clair_disk_record *list = malloc((room + 1) * sizeof *list);
	if (!list)
		return -ENOMEM;
	size_t have = 0, size = room * sizeof *list;
	while (have < size) {
		ssize_t got = read(fd, (char *)list + have, size - have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		have += (size_t)got;
	}
	while (n < have / sizeof *list && clair_disk_record_valid(&list[n]))
		n++;
	*complete = n * sizeof *list == (size_t)st.st_size;
	*records = take_ptr(list);
	*count = n;
	return 0;
}

size_t *clair_disk_hash_records(const struct clair_disk_record *records, size_t count,
				size_t *mask)
{
	size_t room = 16;

	while (room < count * 2)
		room *= 2;
	size_t *table = calloc(room, sizeof *table); /* 1 + index */
	*mask = room - 1;
	for (size_t i = 0; table && i < count; i++) {
		size_t at = records[i].key[0] & *mask;
		while (table[at] &&
		       memcmp(records[table[at] - 1].key, records[i].key, sizeof(uint64_t[2])))
			at = (at + 1) & *mask;
		table[at] = i + 1;
	}
	return table;
}

int clair_disk_read_at(int fd, char *p, size_t size, uint64_t offset)
{
	uint64_t begin = offset, whole = size;

	while (size) {
		ssize_t n = pread(fd, p, size, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG; /* a crash cut the segment */
		p += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	/* No second copy stays in memory. */
	posix_fadvise(fd, (off_t)begin, (off_t)whole, POSIX_FADV_DONTNEED);
	return 0;
}

int clair_disk_open_segment(int dir, uint32_t segment, int flags)
{
	char name[32];

	snprintf(name, sizeof name, "segment-%06u", segment);
	int fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

void clair_disk_remove_segments(int dir, uint32_t first)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autoclosedir DIR *d = copy < 0 ? NULL : fdopendir(copy);

	for (struct dirent *e; d && (e = readdir(d));) {
		char *end;
		unsigned long number;

		if (strncmp(e->d_name, "segment-", 8))
			continue;
		number = strtoul(e->d_name + 8, &end, 10);
		if (end != e->d_name + 8 && !*end && number >= first)
			unlinkat(dir, e->d_name, 0);
	}
}

void clair_disk_wipe(int dir)
{
	unlinkat(dir, "index", 0);
	clair_disk_remove_segments(dir, 0);
}
