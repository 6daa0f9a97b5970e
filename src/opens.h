/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_OPENS_H
#define CLAIR_OPENS_H

#include <stdbool.h>
#include <sys/types.h>

#include "catalog.h"

/* What readers opened, in passes: one pass is what one loader reads from its start to its end,
 * an epoch or a validation. A file that one reader opens several times for one sample counts
 * once. No locks. */

/* The last passes are kept as they were seen, all of them packed as well. */
#define CLAIR_PASSES_KEPT 4
#define CLAIR_PASS_READERS 255
/* Bytes that the packed opens may take; what is beyond is not kept. */
#define CLAIR_OPENS_LIMIT (64u << 20)

struct clair_process {
	pid_t pid, parent; /* 0: unknown */
	uint64_t started;  /* when, clock ticks since boot; 0: unknown */
	uint32_t world, rank; /* of its environment; WORLD 0: none */
};

struct clair_pass_reader {
	struct clair_process process;
	uint32_t count; /* opens in this pass */
	uint32_t last[2];
};

struct clair_pass {
	uint64_t number; /* from 0 */
	uint32_t *ids;   /* in the order of the opens */
	uint8_t *by;     /* index into readers */
	size_t count, room;
	struct clair_pass_reader *readers;
	unsigned reader_count;
	uint64_t begun; /* the first open, clock ticks since boot */
	bool drawn;     /* the same file more than once */
};

struct clair_packed_pass {
	size_t end; /* in the packed bytes */
	uint32_t count;
};

struct clair_opens {
	const struct clair_catalog *catalog;
	struct clair_pass passes[CLAIR_PASSES_KEPT]; /* the newest is the last */
	unsigned kept;                               /* >= 1 */
	uint64_t *seen; /* by file: opened in this pass (before the candidate) */
	/* Where a new pass may have begun in the newest one, SIZE_MAX: nowhere; how many opens
	 * came since, and how many of them were of files seen before. */
	size_t candidate;
	unsigned since, again;
	/* All passes that are over: differences of ids as variable-length numbers. */
	unsigned char *packed;
	size_t packed_size, packed_room;
	struct clair_packed_pass *ends;
	size_t pass_count, pass_room;
	uint64_t total; /* opens, repeats left out */
	uint64_t repeats;
	bool full;
};

int clair_opens_init(struct clair_opens *opens, const struct clair_catalog *catalog);
void clair_opens_finish(struct clair_opens *opens);
/* One open of the file ID by the process WHO at NOW (clock ticks since boot). False: it was
 * opened a moment ago by the same reader, or memory is out. */
bool clair_opens_add(struct clair_opens *opens, struct clair_process who, uint64_t now,
		     uint32_t id);
/* Adds a pass that is over to the packed ones; beyond the limit nothing is added, and FULL is
 * set. 0 or -ENOMEM. */
int clair_opens_pack(struct clair_opens *opens, const uint32_t *ids, size_t count);
/* Unpacks COUNT ids from [*AT, END): false when they are damaged. */
bool clair_opens_unpack(const unsigned char **at, const unsigned char *end, uint32_t *ids,
			uint32_t count);
static inline const struct clair_pass *clair_opens_newest(const struct clair_opens *opens)
{
	return &opens->passes[opens->kept - 1];
}

/* The process that thread TID belongs to, from /proc, as far as it can be read. */
struct clair_process clair_process_of(pid_t tid);
uint64_t clair_ticks_now(void); /* clock ticks since boot */

#endif
