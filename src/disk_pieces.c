/* SPDX-License-Identifier: BSD-3-Clause */
/* Samples that are added, checked and mended piece by piece. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"
#include "disk_internal.h"

struct clair_disk_writer {
	struct clair_disk *disk;
	uint32_t id, pieces;
	uint64_t size;
	int fd; /* of the segment, which stays open */
	struct slot slot;
	struct piece_table *table; /* each hash is written by who writes the piece */
	atomic_uint written;       /* pieces */
	atomic_int error;          /* the first one */
};

static struct piece_table *new_table(uint32_t pieces)
{
	struct piece_table *t = calloc(1, sizeof *t + pieces * (sizeof *t->hash + 1));

	if (t)
		t->right = (atomic_uchar *)(t->hash + pieces);
	return t;
}

/* --- writing ----------------------------------------------------------------------------- */

int clair_disk_begin(struct clair_disk *d, uint32_t id, struct clair_disk_writer **out)
{
	uint64_t size = clair_catalog_entry(d->catalog, id)->size;
	uint64_t whole = clair_disk_with_table(size);

	if (!size || size > UINT32_MAX * (uint64_t)CLAIR_DISK_PIECE)
		return -EINVAL;
	if (clair_disk_has(d, id))
		return -EEXIST;
	int r = clair_disk_claim(d, whole);
	if (r < 0)
		return r;
	struct clair_disk_writer *w = calloc(1, sizeof *w);
	if (w)
		w->table = new_table(clair_disk_piece_count(size));
	if (!w || !w->table) {
		clair_disk_unclaim(d, whole);
		free(w);
		return -ENOMEM;
	}
	w->disk = d;
	w->id = id;
	w->size = size;
	w->pieces = clair_disk_piece_count(size);
	w->slot.pieces = true;
	pthread_mutex_lock(&d->lock);
	/* The claim of the records stays until the end. */
	d->claimed -= whole;
	w->fd = clair_disk_place(d, whole, &w->slot);
	if (w->fd < 0) {
		r = w->fd;
		d->claimed -= 2 * RECORD;
		clair_disk_failed(d, r);
	} else {
		d->unwritten += whole;
	}
	pthread_mutex_unlock(&d->lock);
	if (r < 0) {
		free(w->table);
		free(w);
		return r;
	}
	*out = w;
	return 0;
}

/* SIZE bytes of what was placed are on their way to the device. */
static void count_written(struct clair_disk_writer *w, uint64_t size)
{
	struct clair_disk *d = w->disk;

	pthread_mutex_lock(&d->lock);
	d->unwritten -= size;
	d->since_free += size;
	pthread_mutex_unlock(&d->lock);
	clair_disk_flush_behind(d, w->fd, size);
}

int clair_disk_write(struct clair_disk_writer *w, uint32_t piece, const void *data,
		     size_t size, uint64_t hash)
{
	assert(piece < w->pieces && size == clair_disk_piece_size(w->size, piece));
	int r = clair_disk_write_at(w->fd, data, size,
				    w->slot.offset + (uint64_t)piece * CLAIR_DISK_PIECE);
	if (r < 0) {
		int none = 0;
		atomic_compare_exchange_strong(&w->error, &none, r);
		return r;
	}
	w->table->hash[piece] = hash;
	count_written(w, size);
	atomic_fetch_add(&w->written, 1);
	return 0;
}

/* The room of W, that is not to be a sample, is free again: at the end of the last segment
 * it is the tier's, elsewhere the file system's only. lock */
static void give_room_back(struct clair_disk_writer *w)
{
	struct clair_disk *d = w->disk;
	uint64_t whole = clair_disk_with_table(w->size);

	if (w->slot.segment == d->segment_count - 1 && w->slot.offset + whole == d->tail &&
	    ftruncate(w->fd, (off_t)w->slot.offset) == 0) {
		d->tail = w->slot.offset;
		d->file_bytes -= whole;
		return;
	}
	fallocate(w->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)w->slot.offset,
		  (off_t)whole);
}

/* Bytes that were placed and not written. */
static uint64_t rest_of(const struct clair_disk_writer *w, bool table_too)
{
	uint64_t rest = table_too ? clair_disk_with_table(w->size) - w->size : 0;

	/* A hash of 0 is of a piece that was not written, or as rare as any other. */
	if (atomic_load(&w->written) < w->pieces)
		for (uint32_t i = 0; i < w->pieces; i++)
			rest += w->table->hash[i] ? 0 : clair_disk_piece_size(w->size, i);
	return rest;
}

static void end_writer(struct clair_disk_writer *w, int error, uint64_t rest)
{
	struct clair_disk *d = w->disk;

	pthread_mutex_lock(&d->lock);
	d->claimed -= 2 * RECORD;
	d->unwritten -= rest < d->unwritten ? rest : d->unwritten;
	give_room_back(w);
	if (error < 0)
		clair_disk_failed(d, error);
	pthread_mutex_unlock(&d->lock);
	free(w->table);
	free(w);
}

void clair_disk_abort(struct clair_disk_writer *w)
{
	if (w)
		end_writer(w, atomic_load(&w->error), rest_of(w, true));
}

int clair_disk_commit(struct clair_disk_writer *w)
{
	struct clair_disk *d = w->disk;
	size_t table = w->pieces * sizeof *w->table->hash;
	int r = atomic_load(&w->error);

	if (r == 0 && atomic_load(&w->written) != w->pieces)
		r = -EINVAL;
	if (r == 0)
		r = clair_disk_write_at(w->fd, (const char *)w->table->hash, table,
					w->slot.offset + w->size);
	if (r < 0) {
		end_writer(w, r, rest_of(w, true));
		return r;
	}
	count_written(w, table);
	w->slot.hash = XXH3_64bits(w->table->hash, table);
	pthread_mutex_lock(&d->lock);
	r = clair_disk_has(d, w->id) ? -EEXIST : 0;
	if (r == 0)
		r = clair_disk_append(d, w->id, &w->slot, w->size);
	if (r == 0) {
		w->slot.table = w->table;
		w->slot.checked = true;
		r = clair_disk_add_slot(d, w->id, &w->slot);
	}
	if (r == 0) {
		w->table->next = d->tables;
		d->tables = take_ptr(w->table);
		d->claimed -= 2 * RECORD;
		d->samples++;
		d->bytes += w->size;
		d->errors_in_a_row = 0;
	}
	pthread_mutex_unlock(&d->lock);
	if (r < 0)
		end_writer(w, r == -EEXIST ? 0 : r, 0);
	else
		free(w);
	return r;
}

/* --- reading ----------------------------------------------------------------------------- */

/* The table of ID, from memory or from behind its bytes. */
static int get_table(struct clair_disk *d, uint32_t id, int fd, struct slot *slot,
		     struct piece_table **out)
{
	uint64_t size = clair_catalog_entry(d->catalog, id)->size;
	uint32_t pieces = clair_disk_piece_count(size);

	if (slot->checked) {
		*out = slot->table;
		return 0;
	}
	autofree struct piece_table *t = new_table(pieces);
	if (!t)
		return -ENOMEM;
	int r = clair_disk_read_at(fd, (char *)t->hash, pieces * sizeof *t->hash,
				   slot->offset + size);
	if (r == 0 && XXH3_64bits(t->hash, pieces * sizeof *t->hash) != slot->hash)
		r = -EBADMSG;
	if (r == -EBADMSG)
		clair_disk_forget(d, id); /* nothing of it can be told right from wrong */
	if (r < 0)
		return r;
	autolock(&d->lock);
	uint32_t at = atomic_load(&d->slot_of[id].at);
	struct slot *now = at == NONE ? NULL : &d->slots[at];
	if (!now || now->segment != slot->segment || now->offset != slot->offset)
		return -ENOENT;
	if (!now->checked) {
		now->table = t;
		now->checked = true;
		t->next = d->tables;
		d->tables = take_ptr(t);
	}
	*out = now->table;
	return 0;
}

/* All of one piece, checked. */
static int read_piece(int fd, const struct slot *slot, struct piece_table *table,
		      uint32_t piece, unsigned char *buffer, size_t size)
{
	int r = clair_disk_read_at(fd, (char *)buffer, size,
				   slot->offset + (uint64_t)piece * CLAIR_DISK_PIECE);

	if (r == 0 && XXH3_64bits(buffer, size) != table->hash[piece])
		r = -EBADMSG;
	atomic_store(&table->right[piece], r == 0);
	return r;
}

int clair_disk_read_pieces(struct clair_disk *d, uint32_t id, int fd, struct slot *slot,
			   unsigned char *buffer, size_t size, uint64_t offset)
{
	uint64_t whole = clair_catalog_entry(d->catalog, id)->size;
	autofree unsigned char *room = NULL;
	struct piece_table *table = NULL;
	int r = get_table(d, id, fd, slot, &table);

	while (r == 0 && size) {
		uint32_t piece = (uint32_t)(offset / CLAIR_DISK_PIECE);
		size_t skip = (size_t)(offset % CLAIR_DISK_PIECE);
		size_t has = clair_disk_piece_size(whole, piece);
		size_t part = size < has - skip ? size : has - skip;

		if (part == has) {
			r = read_piece(fd, slot, table, piece, buffer, part);
		} else if (atomic_load(&table->right[piece])) {
			r = clair_disk_read_at(fd, (char *)buffer, part, slot->offset + offset);
		} else {
			if (!room)
				room = malloc(CLAIR_DISK_PIECE);
			r = room ? read_piece(fd, slot, table, piece, room, has) : -ENOMEM;
			if (r == 0)
				memcpy(buffer, room + skip, part);
		}
		buffer += part;
		offset += part;
		size -= part;
	}
	return r;
}

int clair_disk_mend(struct clair_disk *d, uint32_t id, uint32_t piece, const void *data)
{
	uint64_t whole = clair_catalog_entry(d->catalog, id)->size;
	struct piece_table *table;
	struct slot slot;

	int fd = clair_disk_find(d, id, &slot);
	if (fd < 0 || !slot.pieces || piece >= clair_disk_piece_count(whole))
		return -ENOENT;
	int r = get_table(d, id, fd, &slot, &table);
	if (r < 0)
		return r;
	size_t size = clair_disk_piece_size(whole, piece);
	if (XXH3_64bits(data, size) != table->hash[piece]) {
		clair_disk_forget(d, id);
		return -EBADMSG;
	}
	r = clair_disk_write_at(fd, data, size,
				slot.offset + (uint64_t)piece * CLAIR_DISK_PIECE);
	if (r == 0)
		clair_disk_flush_behind(d, fd, size);
	return r;
}
