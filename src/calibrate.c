/* SPDX-License-Identifier: BSD-3-Clause */
#include "calibrate.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "cache_folder.h"
#include "cleanup.h"
#include "clock.h"

#define CHUNK (4u << 20)
#define COPY_BYTES (64u << 20)
#define MOST_THREADS 256u
#define ENOUGH_BYTES (16u << 20) /* to believe a short measurement */

/* --- the source ------------------------------------------------------------------------ */

/* What the readers of one measurement share. */
struct readers {
	struct clair_source *source;
	const struct clair_catalog *catalog;
	const uint32_t *files;
	uint32_t count;
	_Atomic uint32_t next; /* goes on from one measurement to the next */
	_Atomic uint64_t bytes;
	_Atomic int error;
	int64_t end; /* monotonic ns */
};

static int read_file(struct readers *r, uint32_t id, void *buffer)
{
	uint64_t size = clair_catalog_entry(r->catalog, id)->size;
	struct clair_source_file *file;

	int e = clair_source_open(r->source, id, &file);
	if (e < 0)
		return e == -ESTALE || e == -ENOENT ? 0 : e;
	for (uint64_t at = 0; at < size && clair_now_ns() < r->end; at += CHUNK) {
		ssize_t n = clair_source_read(file, buffer, CHUNK, at);
		if (n <= 0) {
			e = (int)n;
			break;
		}
		atomic_fetch_add(&r->bytes, (uint64_t)n);
	}
	clair_source_close(file);
	return e;
}

static void *reader(void *arg)
{
	struct readers *r = arg;
	autofree void *buffer = aligned_alloc(4096, CHUNK);

	while (buffer && clair_now_ns() < r->end) {
		uint32_t i = atomic_fetch_add(&r->next, 1);
		if (i >= r->count)
			break;
		int e = read_file(r, r->files[i], buffer);
		if (e < 0)
			atomic_store(&r->error, e);
	}
	return NULL;
}

/* Bytes/s of THREADS readers for SECONDS; 0: there was nothing left to read. */
static double measure(struct readers *r, unsigned threads, double seconds)
{
	pthread_t thread[MOST_THREADS];
	unsigned begun = 0;
	int64_t begin = clair_now_ns();

	r->end = begin + (int64_t)(seconds * 1e9);
	atomic_store(&r->bytes, 0);
	while (begun < threads && pthread_create(&thread[begun], NULL, reader, r) == 0)
		begun++;
	for (unsigned i = 0; i < begun; i++)
		pthread_join(thread[i], NULL);
	double took = (double)(clair_now_ns() - begin) / 1e9;
	/* A measurement that ran out of files is one as long as it was not too short. */
	if (took < seconds / 4 && atomic_load(&r->bytes) < ENOUGH_BYTES)
		return 0;
	return (double)atomic_load(&r->bytes) / took;
}

/* All files, in an order without a pattern that is the same each time. */
static uint32_t *files_of(const struct clair_catalog *c, uint32_t *count)
{
	uint32_t n = clair_catalog_count(c);
	uint32_t *files = malloc(sizeof *files * (n + 1ul));

	*count = 0;
	for (uint32_t id = 0; files && id < n; id++)
		if (clair_catalog_entry(c, id)->kind == CLAIR_FILE &&
		    clair_catalog_entry(c, id)->size)
			files[(*count)++] = id;
	for (uint32_t i = *count; files && i > 1; i--) {
		uint32_t k = (uint32_t)(XXH3_64bits(&i, sizeof i) % i), t = files[k];
		files[k] = files[i - 1];
		files[i - 1] = t;
	}
	return files;
}

int clair_calibrate_source(struct clair_source *source, const struct clair_catalog *catalog,
			   unsigned threads, double seconds, struct clair_curve *curve)
{
	struct readers r = { .source = source, .catalog = catalog };
	autofree uint32_t *files = files_of(catalog, &r.count);
	int points = 0;

	if (!files)
		return -ENOMEM;
	r.files = files;
	for (unsigned n = 1; n <= threads && n <= MOST_THREADS; n *= 2) {
		double rate = measure(&r, n, seconds);
		if (rate > 0 && clair_curve_set(curve, n, rate) == 0)
			points++;
	}
	int error = atomic_load(&r.error);
	return points ? 0 : error ? error : -ENODATA;
}

/* --- memory and folders ----------------------------------------------------------------- */

double clair_calibrate_memory(void)
{
	autofree char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
	double best = 0;

	if (!from || !to)
		return 0;
	memset(from, 1, COPY_BYTES);
	memset(to, 2, COPY_BYTES);
	for (int i = 0; i < 3; i++) {
		int64_t begin = clair_now_ns();
		memcpy(to, from, COPY_BYTES);
		__asm__ volatile("" : : "r"(to) : "memory");
		double rate = COPY_BYTES / ((double)(clair_now_ns() - begin) / 1e9);
		best = rate > best ? rate : best;
	}
	return best;
}

/* One pass over the file. Bytes/s, or a negative errno. */
static double pass(int fd, void *buffer, uint64_t bytes, bool writes)
{
	int64_t begin = clair_now_ns();

	for (uint64_t at = 0; at < bytes; at += CHUNK) {
		ssize_t n = writes ? pwrite(fd, buffer, CHUNK, (off_t)at) :
				     pread(fd, buffer, CHUNK, (off_t)at);
		if (n != CHUNK)
			return n < 0 ? -errno : -EIO;
	}
	if (writes && fdatasync(fd) < 0)
		return -errno;
	return (double)bytes / ((double)(clair_now_ns() - begin) / 1e9);
}

int clair_calibrate_folder(const char *folder, uint64_t bytes,
			   struct clair_model_class *class)
{
	char path[4096];
	autofree void *buffer = aligned_alloc(4096, CHUNK);

	bytes = (bytes + CHUNK - 1) / CHUNK * CHUNK;
	if (!buffer ||
	    snprintf(path, sizeof path, "%s/.calibrate.%d", folder, getpid()) >= (int)sizeof path)
		return -ENOMEM;
	memset(buffer, 0x5a, CHUNK);
	int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
	autoclose int fd = open(path, flags | O_DIRECT, 0600);
	if (fd < 0 && errno == EINVAL)
		fd = open(path, flags, 0600);
	if (fd < 0)
		return -errno;
	unlink(path); /* nothing is left, whatever ends us */
	double rate = pass(fd, buffer, bytes, true);
	int r = rate < 0 ? (int)rate : clair_curve_set(&class->write, 1, rate);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (r == 0) {
		rate = pass(fd, buffer, bytes, false);
		r = rate < 0 ? (int)rate : clair_curve_set(&class->read, 1, rate);
	}
	return r;
}

/* --- kept ---------------------------------------------------------------------------------- */

int clair_calibrate_path(const char *absolute, bool make, char *path, size_t size)
{
	char host[128] = "", name[192];

	gethostname(host, sizeof host - 1);
	for (char *p = host; *p; p++)
		if (*p == '/')
			*p = '_';
	snprintf(name, sizeof name, "bandwidth-%s-%016llx.json", host,
		 (unsigned long long)XXH3_64bits(absolute, strlen(absolute)));
	return clair_cache_file(name, make, path, size);
}

static json_t *curve_json(const struct clair_curve *c)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < c->count; i++)
		json_array_append_new(list, json_pack("[f, f]", c->at[i].clients,
						      c->at[i].rate / 1e6));
	return list;
}

static void curve_load(const json_t *list, struct clair_curve *c)
{
	json_t *point;
	size_t i;

	json_array_foreach(list, i, point)
	{
		double clients = json_number_value(json_array_get(point, 0));
		double rate = json_number_value(json_array_get(point, 1)) * 1e6;
		if (clients > 0 && rate > 0 && isfinite(clients) && isfinite(rate))
			clair_curve_set(c, clients, rate);
	}
}

/* Rates are MB/s, as [clients, rate]. */
int clair_calibrate_save(const char *file, const struct clair_model *m)
{
	autofree char *temporary = NULL;
	json_t *o = json_pack("{s:i, s:o, s:o, s:o, s:o}", "version", 1, "pfs",
			      curve_json(&m->pfs), "ram", curve_json(&m->ram.read),
			      "cache_read", curve_json(&m->cache.read), "cache_write",
			      curve_json(&m->cache.write));
	int r = 0;

	if (!o || asprintf(&temporary, "%s.%d", file, getpid()) < 0) {
		json_decref(o);
		return -ENOMEM;
	}
	if (json_dump_file(o, temporary, JSON_INDENT(1)) < 0 || rename(temporary, file) < 0) {
		r = errno ? -errno : -EIO;
		unlink(temporary);
	}
	json_decref(o);
	return r;
}

int clair_calibrate_load(const char *file, struct clair_model *m)
{
	json_error_t error;

	if (access(file, R_OK) < 0)
		return -errno;
	json_t *o = json_load_file(file, 0, &error);
	bool good = json_integer_value(json_object_get(o, "version")) == 1;
	if (good) {
		curve_load(json_object_get(o, "pfs"), &m->pfs);
		curve_load(json_object_get(o, "ram"), &m->ram.read);
		curve_load(json_object_get(o, "cache_read"), &m->cache.read);
		curve_load(json_object_get(o, "cache_write"), &m->cache.write);
	}
	json_decref(o);
	return good ? 0 : -EBADMSG;
}
