/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peer_internal.h"

/* Regions (what the mount process shares with us) and landings (where payloads go). */

static char *map(int fd, uint64_t length)
{
	char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return base == MAP_FAILED ? NULL : base;
}

int peer_memory_retire(char *base, uint64_t length)
{
	void *r = mmap(base, length, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	return r == MAP_FAILED ? -errno : 0;
}

int peer_region_add(struct peer *p, uint32_t id, uint64_t length, int fd)
{
	struct stat st;
	struct peer_region *r;

	for (r = p->regions; r; r = r->next)
		if (r->id == id)
			return -EEXIST;
	if (!length || length > SIZE_MAX / 2 || fstat(fd, &st) < 0 || st.st_size < 0 ||
	    (uint64_t)st.st_size < length)
		return -EINVAL;
	r = calloc(1, sizeof *r);
	if (!r)
		return -ENOMEM;
	*r = (struct peer_region){ .id = id, .fd = fd, .length = length };
	r->base = map(fd, length);
	if (!r->base) {
		free(r);
		return -ENOMEM;
	}
	r->next = p->regions;
	p->regions = r;
	return 0;
}

struct peer_region *peer_region_find(struct peer *p, uint32_t id, uint64_t offset,
				     uint64_t length)
{
	for (struct peer_region *r = p->regions; r; r = r->next)
		if (r->id == id)
			return offset <= r->length && length <= r->length - offset ? r
										   : NULL;
	return NULL;
}

void peer_landing_back(struct peer *p, struct peer_landing *l)
{
	l->state = LANDING_FREE;
	if (!l->unwanted && l->region)
		return;
	peer_tell(p,
		  (struct clair_link_frame){ .kind = CLAIR_LINK_UNLANDED, .key = l->key },
		  NULL, -1);
	peer_landing_remove(p, l);
}

/* The landings of the retired mapping R, which nobody that lives uses any more: whatever a
 * dead node still sends goes to memory that nobody reads. */
static void seal(struct peer *p, struct peer_region *r)
{
	struct peer_stuck **at = &p->stuck, *s;

	if (peer_memory_retire(r->base, r->length) < 0)
		return; /* then its landings stay taken */
	while ((s = *at)) {
		if (s->region != r) {
			at = &s->next;
			continue;
		}
		struct peer_landing *l = s->landing;
		l->region = peer_region_find(p, r->id, l->offset, l->length);
		peer_landing_back(p, l);
		*at = s->next;
		free(s);
	}
}

void peer_region_drop(struct peer *p, struct peer_region *r)
{
	if (!r || --r->users)
		return;
	for (struct peer_region **at = &p->retired; *at; at = &(*at)->next)
		if (*at == r) {
			*at = r->next; /* the address space stays: MPI may write to it */
			seal(p, r);
			free(r);
			return;
		}
}

void peer_landing_stuck(struct peer *p, struct peer_landing *l)
{
	struct peer_region *old = l->region, *r;
	struct peer_stuck *s = malloc(sizeof *s);

	l->state = LANDING_STUCK;
	if (!s)
		return;
	*s = (struct peer_stuck){ .next = p->stuck, .region = old, .landing = l };
	p->stuck = s;
	for (r = p->retired; r && r != old; r = r->next)
		;
	if (r)
		return;
	r = malloc(sizeof *r);
	char *base = r ? map(old->fd, old->length) : NULL;
	if (!base) {
		free(r);
		p->stuck = s->next;
		free(s);
		return;
	}
	/* The old one lives on for who uses it now, the new one has its name. */
	*r = *old;
	r->base = base;
	r->users = 0;
	for (struct peer_region **at = &p->regions; *at; at = &(*at)->next)
		if (*at == old) {
			*at = r;
			break;
		}
	for (size_t i = 0; i < PEER_LANDING_BUCKETS; i++)
		for (struct peer_landing *o = p->landings[i]; o; o = o->next)
			if (o->state == LANDING_FREE && o->region == old)
				o->region = r;
	l->region = r;
	old->next = p->retired;
	p->retired = old;
}

static struct peer_landing **bucket_of(struct peer *p, uint64_t key)
{
	return &p->landings[((key * 0x9e3779b97f4a7c15ull) >> 40) % PEER_LANDING_BUCKETS];
}

struct peer_landing *peer_landing_find(struct peer *p, uint64_t key)
{
	struct peer_landing *l = *bucket_of(p, key);

	while (l && l->key != key)
		l = l->next;
	return l;
}

int peer_landing_add(struct peer *p, const struct clair_link_frame *f)
{
	struct peer_region *r = peer_region_find(p, f->region, f->offset, f->length);
	struct peer_landing **bucket = bucket_of(p, f->key);

	if (!r || !f->length || f->length > CLAIR_LINK_PAYLOAD || peer_landing_find(p, f->key))
		return -EINVAL;
	if (p->landing_count >= PEER_LANDINGS)
		return -ENOSPC;
	struct peer_landing *l = malloc(sizeof *l);
	if (!l)
		return -ENOMEM;
	*l = (struct peer_landing){ .next = *bucket,
				    .key = f->key,
				    .region = r,
				    .offset = f->offset,
				    .length = f->length,
				    .state = LANDING_FREE };
	*bucket = l;
	p->landing_count++;
	return 0;
}

void peer_landing_remove(struct peer *p, struct peer_landing *l)
{
	struct peer_landing **at = bucket_of(p, l->key);

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	p->landing_count--;
	free(l);
}

static void drop_landings(struct peer *p, const struct peer_region *r)
{
	for (size_t i = 0; i < PEER_LANDING_BUCKETS; i++)
		for (struct peer_landing **at = &p->landings[i], *l; (l = *at);) {
			if (l->region != r || l->state != LANDING_FREE) {
				at = &l->next;
				continue;
			}
			*at = l->next;
			p->landing_count--;
			free(l);
		}
}

/* The mount process is gone: so shall its memory be, once nothing is on its way. */
void peer_regions_forget(struct peer *p)
{
	struct peer_region **at = &p->regions, *r;

	while ((r = *at)) {
		if (r->users) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		drop_landings(p, r);
		peer_memory_retire(r->base, r->length);
		close(r->fd);
		free(r);
	}
}
