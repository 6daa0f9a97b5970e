/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_STAGE_WORLD_H
#define CLAIR_STAGE_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "stage.h"

/* A stage over a real folder with a kernel of its own: a page cache in memory that can
 * lose pages, say that a file is in use, or hang. */
struct world_pages {
	unsigned char *bytes; /* of the file, NULL: none yet */
	bool *valid;          /* a page */
	bool known;           /* the inode */
	atomic_int readers;
};

struct world {
	char folder[64];
	bool guest; /* the folder is another world's */
	struct clair_catalog *catalog;
	struct clair_stats stats;
	struct clair_source *source;
	struct clair_kernel kernel;
	struct clair_stage *stage;
	uint32_t folder_id;
	/* the kernel */
	pthread_mutex_t lock;
	pthread_cond_t resume;
	struct world_pages *pages;
	uint32_t *fd_id; /* by descriptor */
	uint64_t resident, resident_most;
	bool cannot_tell, hang;
	atomic_int hanging, invalidated;
	uint64_t bytes_read; /* by readers, through READs */
};

struct world_config {
	unsigned files;
	size_t size;       /* about; 0: 100000 */
	size_t large;      /* size of the file large.bin, 0: none */
	uint64_t ram, staging;
	enum clair_keep keep;
	const char *words[16]; /* key, value, …: of the stream; none: no stream */
	struct clair_disk **disks;
	size_t disk_count;
	unsigned threads;
	const char *folder; /* of another world, with its files; NULL: a new one */
};

void world_begin(struct world *w, const struct world_config *config);
void world_end(struct world *w);
int world_set_stream(struct world *w, const char *const *words);
/* The stream's order in EPOCH for RANK, as the sampler gives it. */
struct clair_epoch *world_order(struct world *w, const char *const *words, uint64_t epoch,
				uint32_t rank);
/* A reader opens ID (with its event when EVENT), reads all of it in 128 KiB pieces, and
 * closes. True: the bytes are the source's. */
bool world_read(struct world *w, uint32_t id, bool event);
/* The kernel loses the pages of ID. */
void world_lose(struct world *w, uint32_t id);
bool world_is_resident(struct world *w, uint32_t id);
/* The byte at AT of the file that was made from SEED (large.png: 77). */
unsigned char world_byte(unsigned seed, size_t at);
uint64_t world_dataset(const struct world *w);
/* The sums over all epochs of the stream. */
struct clair_epoch_stats world_sums(struct world *w);

#endif
