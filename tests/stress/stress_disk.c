/* SPDX-License-Identifier: BSD-3-Clause */
/* Adders, readers and forgetters of one directory tier at once, for two seconds; every byte
 * is compared. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "clock.h"
#include "disk.h"

#define FILES 64
#define SIZE 5000
#define THREADS 6
#define CAP (64ull << 20)
#define RUN_NS (2 * CLAIR_NS_PER_S)

static struct clair_catalog *catalog;
static struct clair_disk *disk;
static atomic_bool over, wrong;
static atomic_uint reads;

static uint64_t make_bytes(uint32_t id, unsigned char *out)
{
	uint64_t size = clair_catalog_entry(catalog, id)->size;

	for (uint64_t i = 0; i < size; i++)
		out[i] = (unsigned char)(id * 31 + i);
	return size;
}

static void one_step(uint32_t id, unsigned what, unsigned char *expected, unsigned char *got)
{
	struct clair_disk_usage usage;
	uint64_t hash, size = make_bytes(id, expected);
	int r = -1;

	if (what == 0) {
		clair_disk_forget(disk, id);
	} else if (what < 5) {
		if (clair_disk_claim(disk, size) == 0)
			clair_disk_add(disk, id, expected, size, XXH3_64bits(expected, size));
	} else if (what < 8) {
		r = clair_disk_pread(disk, id, got, size, 0);
	} else {
		r = clair_disk_read(disk, id, got, &hash);
	}
	atomic_fetch_add(&reads, r == 0);
	if ((r == 0 && memcmp(expected, got, size)) || r == -EBADMSG)
		atomic_store(&wrong, true);
	clair_disk_usage(disk, &usage);
	if (usage.bytes > CAP || usage.samples > FILES || usage.errors)
		atomic_store(&wrong, true);
}

static void *worker(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg + 1;
	unsigned char expected[SIZE + FILES], got[SIZE + FILES];

	while (!atomic_load(&over)) {
		uint32_t id = (uint32_t)rand_r(&seed) % clair_catalog_count(catalog);
		if (clair_catalog_entry(catalog, id)->kind == CLAIR_FILE)
			one_step(id, (unsigned)rand_r(&seed) % 12, expected, got);
	}
	return NULL;
}

static void make_source(const char *top)
{
	char path[128];

	snprintf(path, sizeof path, "%s/source", top);
	int root = mkdir(path, 0755) == 0 ? open(path, O_RDONLY | O_DIRECTORY) : -1;
	if (root < 0)
		abort();
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof path, "f%d", i);
		int fd = openat(root, path, O_WRONLY | O_CREAT, 0644);
		if (fd < 0 || ftruncate(fd, SIZE + i) < 0)
			abort();
		close(fd);
	}
	if (clair_catalog_walk(root, 1, NULL, NULL, &catalog) < 0)
		abort();
	close(root);
}

int main(void)
{
	char top[] = "/tmp/clairfs-stress-XXXXXX", tier[64], command[64], *error = NULL;
	struct clair_disk_config config = { .path = tier, .bytes = CAP };
	pthread_t threads[THREADS];

	if (!mkdtemp(top))
		abort();
	make_source(top);
	snprintf(tier, sizeof tier, "%s/tier", top);
	if (clair_disk_open(&config, catalog, &disk, &error) < 0)
		abort();
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, (void *)i);
	int64_t end = clair_now_ns() + RUN_NS;
	while (clair_now_ns() < end)
		usleep(10000);
	atomic_store(&over, true);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	clair_disk_close(disk);
	clair_catalog_free(catalog);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	if (system(command))
		return 1;
	printf("%u right reads%s\n", atomic_load(&reads), atomic_load(&wrong) ? ", wrong ones" : "");
	return atomic_load(&wrong) || !atomic_load(&reads);
}
