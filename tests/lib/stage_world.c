/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage_world.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"

#define PAGE 4096u
#define FDS 4096
#define READ_SIZE (128u << 10)

/* --- the kernel -------------------------------------------------------------------- */

static uint64_t size_of(struct world *w, uint32_t id)
{
	return clair_catalog_entry(w->catalog, id)->size;
}

/* Room for ID's pages. lock */
static struct world_pages *pages_of(struct world *w, uint32_t id)
{
	struct world_pages *p = &w->pages[id];

	if (!p->bytes) {
		uint64_t pages = size_of(w, id) / PAGE + 1;
		p->bytes = calloc(pages, PAGE);
		p->valid = calloc(pages, sizeof *p->valid);
	}
	return p;
}

static void fill(struct world *w, uint32_t id, uint64_t offset, const void *data, size_t size)
{
	autolock(&w->lock);
	struct world_pages *p = pages_of(w, id);
	uint64_t end = offset + size, whole = size_of(w, id);

	assert(offset % PAGE == 0 && end <= whole);
	memcpy(p->bytes + offset, data, size);
	for (uint64_t i = offset / PAGE; i * PAGE < end; i++) {
		if ((i + 1) * PAGE > end && end != whole)
			break; /* not the whole page */
		if (!p->valid[i])
			w->resident += PAGE;
		p->valid[i] = true;
	}
	if (w->resident > w->resident_most)
		w->resident_most = w->resident;
}

static int k_open(void *self, uint32_t id, bool fresh)
{
	struct world *w = self;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert(fd >= 0 && fd < FDS);
	autolock(&w->lock);
	if (fresh)
		w->pages[id].known = true;
	w->fd_id[fd] = id;
	return fd;
}

static int k_push(void *self, uint32_t id, uint64_t offset, const void *data, size_t size)
{
	struct world *w = self;

	pthread_mutex_lock(&w->lock);
	while (w->hang) {
		atomic_fetch_add(&w->hanging, 1);
		pthread_cond_wait(&w->resume, &w->lock);
	}
	bool known = w->pages[id].known;
	pthread_mutex_unlock(&w->lock);
	if (!known)
		return -ENOENT;
	fill(w, id, offset, data, size);
	return 0;
}

static void k_touch(void *self, int fd, uint64_t size)
{
	(void)self;
	(void)fd;
	(void)size;
}

static void lose(struct world *w, uint32_t id)
{
	struct world_pages *p = pages_of(w, id);

	for (uint64_t i = 0; i * PAGE < size_of(w, id); i++) {
		if (p->valid[i])
			w->resident -= PAGE;
		p->valid[i] = false;
	}
}

static int k_drop(void *self, int fd, uint64_t offset, uint64_t size)
{
	struct world *w = self;
	autolock(&w->lock);

	assert(offset == 0 && size == size_of(w, w->fd_id[fd]));
	lose(w, w->fd_id[fd]);
	return 0;
}

static int k_unused(void *self, int fd)
{
	struct world *w = self;
	autolock(&w->lock);

	return atomic_load(&w->pages[w->fd_id[fd]].readers) == 0;
}

static int64_t k_resident(void *self, int fd, uint64_t size)
{
	struct world *w = self;
	int64_t n = 0;
	autolock(&w->lock);

	if (w->cannot_tell)
		return -EPERM;
	struct world_pages *p = pages_of(w, w->fd_id[fd]);
	for (uint64_t i = 0; i * PAGE < size; i++)
		n += p->valid[i] ? PAGE : 0;
	return n;
}

static void k_invalidate(void *self, uint32_t id)
{
	struct world *w = self;

	world_lose(w, id);
	atomic_fetch_add(&w->invalidated, 1);
}

/* --- readers ----------------------------------------------------------------------- */

void world_lose(struct world *w, uint32_t id)
{
	autolock(&w->lock);
	lose(w, id);
}

bool world_is_resident(struct world *w, uint32_t id)
{
	autolock(&w->lock);
	struct world_pages *p = pages_of(w, id);
	for (uint64_t i = 0; i * PAGE < size_of(w, id); i++)
		if (!p->valid[i])
			return false;
	return true;
}

/* The pages of [offset, offset + size) are all there. */
static bool hit(struct world *w, uint32_t id, uint64_t offset, size_t size)
{
	autolock(&w->lock);
	struct world_pages *p = pages_of(w, id);
	for (uint64_t i = offset / PAGE; i * PAGE < offset + size; i++)
		if (!p->valid[i])
			return false;
	return true;
}

bool world_read(struct world *w, uint32_t id, bool event)
{
	char path[4200], relative[4096];
	uint64_t size = size_of(w, id);
	bool right = true;

	clair_catalog_path(w->catalog, id, relative, sizeof relative);
	snprintf(path, sizeof path, "%s/%s", w->folder, relative);
	autoclose int fd = open(path, O_RDONLY);
	autofree unsigned char *want = malloc(READ_SIZE);
	autofree unsigned char *got = malloc(READ_SIZE);
	assert(want && got);
	atomic_fetch_add(&w->pages[id].readers, 1);
	if (event)
		clair_stage_opened(w->stage, id, clair_now_ns());
	for (uint64_t at = 0; at < size && right; at += READ_SIZE) {
		size_t n = size - at < READ_SIZE ? (size_t)(size - at) : READ_SIZE;
		ssize_t have = pread(fd, want, n, (off_t)at);
		if (!hit(w, id, at, n)) {
			struct clair_bytes bytes;
			int r = clair_stage_read(w->stage, id, at, n, &bytes);
			if (r < 0 || (ssize_t)bytes.size != have) {
				fprintf(stderr, "%s at %lu: %d, %zu of %zd bytes\n", path, at,
					r, bytes.size, have);
				right = false;
				break;
			}
			right = !memcmp(bytes.data, want, bytes.size);
			if (bytes.size == n)
				fill(w, id, at, bytes.data, bytes.size);
			clair_stage_release(w->stage, &bytes);
		} else {
			pthread_mutex_lock(&w->lock);
			memcpy(got, w->pages[id].bytes + at, n);
			pthread_mutex_unlock(&w->lock);
			right = have == (ssize_t)n && !memcmp(got, want, n);
		}
	}
	atomic_fetch_sub(&w->pages[id].readers, 1);
	return right;
}

/* --- the world --------------------------------------------------------------------- */

unsigned char world_byte(unsigned seed, size_t at)
{
	return (unsigned char)((at * 2654435761u >> 29) + seed * 157u);
}

static void make_file(const char *folder, const char *name, size_t size, unsigned seed)
{
	char path[4096];
	unsigned char *data = malloc(size + 8);

	for (size_t i = 0; i < size; i++)
		data[i] = world_byte(seed, i);
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *f = fopen(path, "w");
	assert(f && data);
	size_t n = fwrite(data, 1, size, f);
	assert(n == size);
	fclose(f);
	free(data);
}

static void make_words(struct clair_words *words, const char *const *pairs)
{
	for (; pairs[0]; pairs += 2)
		clair_words_set(words, pairs[0], pairs[1]);
}

static struct clair_stream *make_stream(struct world *w, const char *const *pairs)
{
	struct clair_words words = { 0 };
	struct clair_stream *stream = NULL;
	char *error = NULL;

	make_words(&words, pairs);
	if (clair_stream_new(w->catalog, w->folder_id, &words, &stream, &error) < 0)
		fprintf(stderr, "stream: %s\n", error ? error : "?");
	clair_words_finish(&words);
	assert(stream);
	return stream;
}

int world_set_stream(struct world *w, const char *const *words)
{
	return clair_stage_set_stream(w->stage, make_stream(w, words));
}

struct clair_epoch *world_order(struct world *w, const char *const *words, uint64_t epoch,
				uint32_t rank)
{
	struct clair_stream *stream = make_stream(w, words);
	struct clair_epoch *e = NULL;

	clair_stream_epoch(stream, epoch, rank, &e);
	clair_stream_free(stream);
	return e;
}

static void make_folder(struct world *w, const struct world_config *c)
{
	size_t size = c->size ? c->size : 100000;
	char name[128];

	strcpy(w->folder, "/tmp/clairfs-stage-XXXXXX");
	if (!mkdtemp(w->folder))
		abort();
	snprintf(name, sizeof name, "%s/train", w->folder);
	mkdir(name, 0700);
	for (unsigned i = 0; i < c->files; i++) {
		snprintf(name, sizeof name, "train/%05u.png", i);
		make_file(w->folder, name, size / 2 + (size * (i * 7919u % 1000)) / 1000, i);
	}
	if (c->large)
		make_file(w->folder, "train/large.png", c->large, 77);
	make_file(w->folder, "readme.txt", 5000, 78);
}

void world_begin(struct world *w, const struct world_config *c)
{
	memset(w, 0, sizeof *w);
	w->guest = c->folder;
	if (w->guest)
		snprintf(w->folder, sizeof w->folder, "%s", c->folder);
	else
		make_folder(w, c);
	int root = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = clair_catalog_walk(root, 2, NULL, NULL, &w->catalog);
	assert(r == 0);
	r = clair_source_new(root, w->catalog, &w->stats, &w->source);
	assert(r == 0);
	w->folder_id = clair_catalog_find(w->catalog, "train");
	w->pages = calloc(clair_catalog_count(w->catalog), sizeof *w->pages);
	w->fd_id = calloc(FDS, sizeof *w->fd_id);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->resume, NULL);
	w->kernel = (struct clair_kernel){ w,      k_open,   k_push,     k_touch,
					   k_drop, k_unused, k_resident, k_invalidate };
	struct clair_stage_config config = {
		.catalog = w->catalog, .source = w->source, .kernel = &w->kernel,
		.disks = c->disks, .disk_count = c->disk_count, .stats = &w->stats,
		.ram = c->ram, .staging = c->staging, .keep = c->keep,
		.threads = c->threads,
	};
	r = clair_stage_new(&config, &w->stage);
	assert(r == 0);
	if (c->words[0])
		world_set_stream(w, c->words);
}

void world_end(struct world *w)
{
	char command[128];

	clair_stage_stop(w->stage);
	clair_stage_free(w->stage);
	for (uint32_t i = 0; i < clair_catalog_count(w->catalog); i++) {
		free(w->pages[i].bytes);
		free(w->pages[i].valid);
	}
	free(w->pages);
	free(w->fd_id);
	clair_source_free(w->source);
	clair_catalog_free(w->catalog);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->resume);
	if (w->guest)
		return;
	snprintf(command, sizeof command, "rm -rf '%s'", w->folder);
	if (system(command))
		fprintf(stderr, "%s is left behind\n", w->folder);
}

uint64_t world_dataset(const struct world *w)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < clair_catalog_count(w->catalog); i++) {
		const struct clair_entry *e = clair_catalog_entry(w->catalog, i);
		if (e->kind == CLAIR_FILE && e->parent == w->folder_id)
			sum += e->size;
	}
	return sum;
}

struct clair_epoch_stats world_sums(struct world *w)
{
	struct clair_epoch_stats sums = { 0 };
	json_t *o = json_object(), *epoch;
	size_t i;

	clair_stage_json(w->stage, o);
	json_t *streams = json_object_get(o, "streams");
	json_t *epochs = json_object_get(json_array_get(streams, 0), "epochs");
	json_array_foreach(epochs, i, epoch) {
		sums.opens += (uint64_t)json_integer_value(json_object_get(epoch, "opens"));
		sums.staged += (uint64_t)json_integer_value(json_object_get(epoch, "staged"));
		sums.late += (uint64_t)json_integer_value(json_object_get(epoch, "late"));
		sums.missed += (uint64_t)json_integer_value(json_object_get(epoch, "missed"));
		sums.unpredicted += (uint64_t)json_integer_value(
			json_object_get(epoch, "unpredicted"));
	}
	json_decref(o);
	return sums;
}
