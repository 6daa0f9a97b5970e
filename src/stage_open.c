/* SPDX-License-Identifier: BSD-3-Clause */
/* Large files of the source stay open while anybody loads pieces of them, and some a little
 * longer: one open a file that is fetched. */
#include "stage_internal.h"

#include <errno.h>

#define IDLE_MOST 8u                /* files that nobody reads */
#define RECHECK_NS CLAIR_NS_PER_S   /* attributes are asked for again after this */

struct opened {
	struct opened *next;
	struct clair_source_file *file; /* when done and no error */
	uint32_t id;
	unsigned users;
	bool listed, done;
	int error;
	int64_t seen; /* monotonic ns: its attributes were the catalog's */
	pthread_cond_t ready;
};

struct clair_source_file *stage_file_of(const struct opened *o)
{
	return o->file;
}

/* lock */
static struct opened *new_opened(struct clair_stage *st, uint32_t id)
{
	struct opened *o = calloc(1, sizeof *o);

	if (!o)
		return NULL;
	clair_cond_init(&o->ready);
	o->id = id;
	o->users = 1;
	o->listed = true;
	o->next = st->opened;
	st->opened = o;
	return o;
}

static void unlist(struct clair_stage *st, struct opened *o)
{
	struct opened **p = &st->opened;

	if (!o->listed)
		return;
	while (*p != o)
		p = &(*p)->next;
	*p = o->next;
	o->listed = false;
}

static void free_opened(struct opened *o)
{
	if (!o)
		return;
	clair_source_close(o->file);
	pthread_cond_destroy(&o->ready);
	free(o);
}

/* The one to close when too many are idle: which was seen the longest ago. lock */
static struct opened *excess(struct clair_stage *st)
{
	struct opened *oldest = NULL;
	unsigned idle = 0;

	for (struct opened *o = st->opened; o; o = o->next) {
		if (o->users)
			continue;
		idle++;
		if (!oldest || o->seen < oldest->seen)
			oldest = o;
	}
	if (idle <= IDLE_MOST)
		return NULL;
	unlist(st, oldest);
	return oldest;
}

void stage_file_put(struct clair_stage *st, struct opened *o)
{
	struct opened *gone = NULL;

	if (!o)
		return;
	pthread_mutex_lock(&st->lock);
	if (--o->users == 0)
		gone = o->listed ? excess(st) : o;
	pthread_mutex_unlock(&st->lock);
	free_opened(gone);
}

static int open_it(struct clair_stage *st, struct opened *o)
{
	struct clair_source_file *file = NULL;
	int r = clair_source_open(st->config.source, o->id, &file);

	autolock(&st->lock);
	o->file = file;
	o->error = r;
	o->seen = clair_now_ns();
	o->done = true;
	if (r < 0)
		unlist(st, o);
	pthread_cond_broadcast(&o->ready);
	return r;
}

/* Waits until another thread has opened O. lock */
static int await(struct clair_stage *st, struct opened *o)
{
	struct timespec deadline = clair_deadline(PATIENCE_NS);

	while (!o->done)
		if (pthread_cond_timedwait(&o->ready, &st->lock, &deadline) == ETIMEDOUT &&
		    !o->done)
			return -ETIMEDOUT;
	return o->error;
}

/* It was opened a while ago: is it still what the catalog says? */
static bool still_good(struct clair_stage *st, struct opened *o)
{
	int64_t now = clair_now_ns();

	pthread_mutex_lock(&st->lock);
	bool fresh = now - o->seen < RECHECK_NS;
	if (!fresh)
		o->seen = now; /* one asks */
	pthread_mutex_unlock(&st->lock);
	if (fresh || clair_source_recheck(o->file) == 0)
		return true;
	autolock(&st->lock);
	unlist(st, o);
	return false;
}

int stage_file_get(struct clair_stage *st, uint32_t id, struct opened **out)
{
	for (;;) {
		pthread_mutex_lock(&st->lock);
		struct opened *o = st->opened;
		while (o && o->id != id)
			o = o->next;
		bool mine = !o;
		int r = 0;
		if (mine)
			o = new_opened(st, id);
		else
			o->users++;
		if (o && !mine) {
			r = await(st, o);
			if (r == -ETIMEDOUT)
				unlist(st, o); /* others need not wait for it too */
		}
		pthread_mutex_unlock(&st->lock);
		if (!o)
			return -ENOMEM;
		if (mine)
			r = open_it(st, o);
		bool good = r == 0 && (mine || still_good(st, o));
		if (good) {
			*out = o;
			return 0;
		}
		stage_file_put(st, o);
		if (r < 0)
			return r;
	}
}

void stage_close_files(struct clair_stage *st)
{
	while (st->opened) {
		struct opened *o = st->opened;
		st->opened = o->next;
		free_opened(o);
	}
}
