/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads of samples, checked. No lock is held around them. */
#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

#include "cleanup.h"
#include "disk_internal.h"

int clair_disk_find(struct clair_disk *d, uint32_t id, struct slot *slot)
{
	autolock(&d->lock);
	uint32_t at = atomic_load(&d->slot_of[id].at);
	if (at == NONE)
		return -ENOENT;
	*slot = d->slots[at];
	return slot->segment < d->segment_count && d->segments[slot->segment] >= 0 ?
		       d->segments[slot->segment] :
		       -ENOENT;
}

int clair_disk_read_failed(struct clair_disk *d, uint32_t id, int r, bool forget)
{
	pthread_mutex_lock(&d->lock);
	if (r == -EBADMSG)
		d->damaged++;
	else
		d->errors++;
	pthread_mutex_unlock(&d->lock);
	if (r == -EBADMSG && forget)
		clair_disk_forget(d, id);
	return r;
}

int clair_disk_read(struct clair_disk *d, uint32_t id, void *buffer, uint64_t *hash)
{
	uint64_t size = clair_catalog_entry(d->catalog, id)->size;
	struct slot slot;

	int fd = clair_disk_find(d, id, &slot);
	if (fd < 0)
		return fd;
	int r = slot.pieces ? clair_disk_read_pieces(d, id, fd, &slot, buffer, size, 0) :
			      clair_disk_read_at(fd, buffer, size, slot.offset);
	uint64_t found = r == 0 && (!slot.pieces || hash) ? XXH3_64bits(buffer, size) : 0;
	if (r == 0 && !slot.pieces && found != slot.hash)
		r = -EBADMSG;
	if (r < 0)
		return clair_disk_read_failed(d, id, r, !slot.pieces);
	if (hash)
		*hash = found;
	return 0;
}

#define STEP (1u << 20)

/* Whether the bytes of a large sample without a table have its hash, in steps. */
static int check_whole(int fd, const struct slot *slot, uint64_t size)
{
	XXH3_state_t *state = XXH3_createState();
	autofree char *buffer = malloc(STEP);
	int r = state && buffer ? 0 : -ENOMEM;

	if (r == 0)
		XXH3_64bits_reset(state);
	for (uint64_t at = 0; r == 0 && at < size; at += STEP) {
		size_t step = size - at < STEP ? size - at : STEP;
		r = clair_disk_read_at(fd, buffer, step, slot->offset + at);
		if (r == 0)
			XXH3_64bits_update(state, buffer, step);
	}
	if (r == 0 && XXH3_64bits_digest(state) != slot->hash)
		r = -EBADMSG;
	XXH3_freeState(state);
	return r;
}

int clair_disk_pread(struct clair_disk *d, uint32_t id, void *buffer, size_t size,
		     uint64_t offset)
{
	uint64_t whole = clair_catalog_entry(d->catalog, id)->size;
	struct slot slot;

	if (offset > whole || size > whole - offset)
		return -EINVAL;
	int fd = clair_disk_find(d, id, &slot);
	if (fd < 0)
		return fd;
	int r;
	if (slot.pieces) {
		r = clair_disk_read_pieces(d, id, fd, &slot, buffer, size, offset);
		return r < 0 ? clair_disk_read_failed(d, id, r, false) : 0;
	}
	r = slot.checked ? 0 : check_whole(fd, &slot, whole);
	if (r == 0)
		r = clair_disk_read_at(fd, buffer, size, slot.offset + offset);
	if (r < 0)
		return clair_disk_read_failed(d, id, r, !slot.pieces);
	if (!slot.checked) {
		autolock(&d->lock);
		uint32_t at = atomic_load(&d->slot_of[id].at);
		if (at != NONE && d->slots[at].offset == slot.offset &&
		    d->slots[at].segment == slot.segment)
			d->slots[at].checked = true;
	}
	return 0;
}
