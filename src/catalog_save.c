/* SPDX-License-Identifier: BSD-3-Clause */
/* The saved form: a header, then entries, sorted ids, owners and names as they are in
 * memory (little-endian hosts of one word order; the header says so). What is read is
 * checked by a checksum and then for every bound, since a file or a peer may say
 * anything. */
#include "catalog_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"

#define MAGIC 0x3147544152494c43ull /* "CLIRATG1" */
#define VERSION 1
#define ORDER 0x01020304u

struct header {
	uint64_t magic;
	uint32_t version, byte_order;
	uint64_t checksum; /* XXH3 of all that follows this field, the payload included */
	uint64_t root_ino;
	uint64_t names_size;
	uint32_t count, owner_count;
};
static_assert(sizeof(struct header) == 48, "goes to disk and the network");

/* Entries follow it in memory as they do in the file. */
static_assert(sizeof(struct header) % 8 == 0, "alignment of the entries");

#define CHECKED offsetof(struct header, root_ino)

struct part {
	const void *at;
	size_t size;
};

#define PARTS 4

/* What follows the header, in its order. */
static void parts_of(const struct clair_catalog *c, struct part parts[PARTS])
{
	parts[0] = (struct part){ c->entries, sizeof *c->entries * c->count };
	parts[1] = (struct part){ c->sorted, sizeof *c->sorted * c->count };
	parts[2] = (struct part){ c->owners, sizeof *c->owners * c->owner_count };
	parts[3] = (struct part){ c->names, c->names_size };
}

static int make_header(const struct clair_catalog *c, const struct part parts[PARTS],
		       struct header *h)
{
	XXH3_state_t *state = XXH3_createState();

	if (!state)
		return -ENOMEM;
	*h = (struct header){ MAGIC, VERSION, ORDER, 0, c->root_ino, c->names_size, c->count,
			      c->owner_count };
	XXH3_64bits_reset(state);
	XXH3_64bits_update(state, (const char *)h + CHECKED, sizeof *h - CHECKED);
	for (int i = 0; i < PARTS; i++)
		XXH3_64bits_update(state, parts[i].at, parts[i].size);
	h->checksum = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return 0;
}

static bool entry_is_sound(const struct clair_catalog *c, uint32_t id)
{
	const struct clair_entry *e = &c->entries[id];

	if (e->name >= c->names_size || e->owner >= c->owner_count ||
	    e->kind > CLAIR_SPECIAL || (id ? e->parent >= id : e->parent != 0))
		return false;
	if (e->kind == CLAIR_LINK)
		return e->first < c->names_size;
	if (e->kind == CLAIR_FOLDER)
		return e->count == 0 || (e->first > id && e->first <= c->count &&
					 e->count <= c->count - e->first);
	return true;
}

static bool is_sound(const struct clair_catalog *c)
{
	if (!c->count || c->entries[0].kind != CLAIR_FOLDER || !c->names_size ||
	    c->names[c->names_size - 1])
		return false;
	for (uint32_t id = 0; id < c->count; id++) {
		const struct clair_entry *e = &c->entries[id];

		if (!entry_is_sound(c, id) || c->sorted[id] >= c->count)
			return false;
		if (id && c->entries[e->parent].kind != CLAIR_FOLDER)
			return false;
	}
	return true;
}

/* BLOCK (heap) is taken on success. */
static int adopt(void *block, size_t size, struct clair_catalog **out)
{
	struct header h;

	if (size < sizeof h)
		return -EBADMSG;
	memcpy(&h, block, sizeof h);
	uint64_t fixed = sizeof(struct clair_entry) + sizeof(uint32_t);
	if (h.magic != MAGIC || h.version != VERSION || h.byte_order != ORDER ||
	    h.owner_count > UINT16_MAX + 1u || h.names_size > UINT32_MAX ||
	    size != sizeof h + fixed * h.count + sizeof(struct clair_owner) * h.owner_count +
			    h.names_size ||
	    h.checksum != XXH3_64bits((const char *)block + CHECKED, size - CHECKED))
		return -EBADMSG;
	struct clair_catalog *c = calloc(1, sizeof *c);
	if (!c)
		return -ENOMEM;
	char *p = (char *)block + sizeof h;
	c->count = h.count;
	c->owner_count = h.owner_count;
	c->names_size = h.names_size;
	c->root_ino = h.root_ino;
	c->entries = (struct clair_entry *)(void *)p;
	p += sizeof *c->entries * h.count;
	c->sorted = (uint32_t *)(void *)p;
	p += sizeof *c->sorted * h.count;
	c->owners = (struct clair_owner *)(void *)p;
	c->names = p + sizeof *c->owners * h.owner_count;
	int r = is_sound(c) ? clair_catalog_complete(c, false) : -EBADMSG;
	if (r < 0) {
		free(c);
		return r;
	}
	c->block = block;
	*out = c;
	return 0;
}

int clair_catalog_unpack(const void *bytes, size_t size, struct clair_catalog **out)
{
	void *block = malloc(size ? size : 1);

	if (!block)
		return -ENOMEM;
	memcpy(block, bytes, size);
	int r = adopt(block, size, out);
	if (r < 0)
		free(block);
	return r;
}

/* --- files ------------------------------------------------------------------------ */

static int write_all(int fd, const char *p, size_t size)
{
	while (size) {
		ssize_t n = write(fd, p, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		size -= n;
	}
	return 0;
}

int clair_catalog_write(const struct clair_catalog *c, int fd)
{
	struct part parts[PARTS];
	struct header h;

	parts_of(c, parts);
	int r = make_header(c, parts, &h);
	if (r == 0)
		r = write_all(fd, (const char *)&h, sizeof h);
	for (int i = 0; i < PARTS && r == 0; i++)
		r = write_all(fd, parts[i].at, parts[i].size);
	return r;
}

int clair_catalog_save(const struct clair_catalog *c, const char *file)
{
	autofree char *temporary = NULL;

	if (asprintf(&temporary, "%s.%d.tmp", file, getpid()) < 0) {
		temporary = NULL;
		return -ENOMEM;
	}
	autoclose int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int r = clair_catalog_write(c, fd);
	/* On disk before it has its name: a crash leaves the old file or the new one. */
	if (r == 0 && fdatasync(fd) < 0)
		r = -errno;
	if (r == 0 && rename(temporary, file) < 0)
		r = -errno;
	if (r < 0)
		unlink(temporary);
	return r;
}

static int read_file(const char *file, char **bytes, size_t *size)
{
	struct stat st;
	autoclose int fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EILSEQ; /* /dev/null, say: not ours to replace */
	autofree char *buffer = malloc(st.st_size + 1);
	if (!buffer)
		return -ENOMEM;
	size_t have = 0;
	while (have < (size_t)st.st_size) {
		ssize_t n = read(fd, buffer + have, st.st_size - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += n;
	}
	*bytes = take_ptr(buffer);
	*size = have;
	return 0;
}

/* --- against the source ----------------------------------------------------------- */

struct check {
	const struct clair_catalog *c;
	int root_fd;
	_Atomic uint32_t next;
	_Atomic int stale;
};

/* Few, since folders lie together: those of one level follow each other. */
#define CHUNK 32

static bool folder_is_same(const struct check *k, uint32_t id)
{
	const struct clair_entry *e = &k->c->entries[id];
	char path[4096];
	struct stat st;

	if (clair_catalog_path(k->c, id, path, sizeof path) >= sizeof path)
		return true; /* could not be listed by this path either */
	if (fstatat(k->root_fd, id ? path : "", &st,
		    AT_SYMLINK_NOFOLLOW | (id ? 0 : AT_EMPTY_PATH)) < 0)
		return false;
	return S_ISDIR(st.st_mode) && (st.st_mode & 07777) == e->mode &&
	       st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec == e->mtime_ns &&
	       (id || st.st_ino == k->c->root_ino);
}

static void *check_thread(void *p)
{
	struct check *k = p;

	for (;;) {
		uint32_t begin = atomic_fetch_add(&k->next, CHUNK);
		if (begin >= k->c->count || atomic_load(&k->stale))
			return NULL;
		uint32_t end = k->c->count - begin > CHUNK ? begin + CHUNK : k->c->count;
		for (uint32_t id = begin; id < end; id++) {
			const struct clair_entry *e = &k->c->entries[id];
			/* A folder that could not be listed may be readable by now. */
			if (e->kind == CLAIR_FOLDER &&
			    (e->flags & CLAIR_UNREADABLE || !folder_is_same(k, id)))
				atomic_store(&k->stale, 1);
		}
	}
}

static int check_source(const struct clair_catalog *c, int root_fd)
{
	struct check k = { .c = c, .root_fd = root_fd };
	pthread_t threads[15];
	unsigned started = 0;

	while (started < 15 && (uint32_t)(started + 1) * CHUNK < c->count &&
	       !pthread_create(&threads[started], NULL, check_thread, &k))
		started++;
	check_thread(&k);
	while (started)
		pthread_join(threads[--started], NULL);
	return k.stale ? -ESTALE : 0;
}

int clair_catalog_load(const char *file, int root_fd, struct clair_catalog **out)
{
	autofree char *bytes = NULL;
	const uint64_t magic = MAGIC;
	struct clair_catalog *c;
	size_t size = 0;

	int r = read_file(file, &bytes, &size);
	if (r == 0 && size && (size < sizeof magic || memcmp(bytes, &magic, sizeof magic)))
		r = -EILSEQ;
	if (r == 0)
		r = adopt(bytes, size, &c);
	if (r < 0)
		return r;
	bytes = NULL; /* the catalog's now */
	r = check_source(c, root_fd);
	if (r < 0) {
		clair_catalog_free(c);
		return r;
	}
	*out = c;
	return 0;
}
