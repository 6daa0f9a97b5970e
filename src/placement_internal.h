/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PLACEMENT_INTERNAL_H
#define CLAIR_PLACEMENT_INTERNAL_H

#include "placement.h"

#define CLAIR_PLACEMENT_EPOCHS 8u

struct clair_placement {
	uint32_t count; /* ids */
	uint32_t node_count;
	uint16_t *homes;    /* by id */
	uint64_t *copies;   /* bits by id: SELF's */
	uint64_t *filled;   /* by node, bytes */
	uint64_t *capacity; /* by node, bytes, cut so that sums do not overflow */
	uint64_t total;     /* of the capacities */
	/* Weighted choice of a node: ends of their shares of WEIGHT, and by the share of
	 * the hash the node where the search begins. */
	uint64_t *ends;
	uint64_t weight;
	uint16_t *guide;
};

/* Nobody is the home of anything yet. 0, -ENOMEM, -EINVAL (see struct clair_policy). */
int clair_placement_new(const struct clair_placement_input *input,
			struct clair_placement **out);
/* A node, by its share of the job's capacity. */
uint16_t clair_placement_pick(const struct clair_placement *placement, uint64_t hash);
uint64_t clair_placement_mix(uint64_t a, uint64_t b);

static inline bool clair_placement_fits(const struct clair_placement *p, uint32_t node,
					uint64_t size)
{
	return p->capacity[node] && size <= p->capacity[node] - p->filled[node];
}

static inline void clair_placement_put(struct clair_placement *p, uint32_t id,
				       uint16_t node, uint64_t size)
{
	p->homes[id] = node;
	p->filled[node] += size;
}

static inline void clair_placement_put_copy(struct clair_placement *p, uint32_t id)
{
	p->copies[id / 64] |= 1ull << id % 64;
}

static inline uint64_t clair_placement_size(const struct clair_placement_input *input,
					    uint32_t id)
{
	return input->catalog ? clair_catalog_entry(input->catalog, id)->size :
				input->sizes[id];
}

/* OWNER (by id, all CLAIR_NO_NODE) becomes the stream that each regular file belongs to.
 * 0 or -EINVAL: a stream that is not of this catalog. */
int clair_placement_claim(const struct clair_placement_input *input, uint16_t *owner);
/* How the ranks of stream S read: whether their lists are gone through. Not when the order
 * is unknown, and not when very many read (nearly) everything: then all are alike. */
enum clair_walk { CLAIR_WALK_RANKS, CLAIR_WALK_UNKNOWN, CLAIR_WALK_ALIKE };
int clair_placement_walk(const struct clair_placement_input *input, size_t s,
			 enum clair_walk *out);
/* How many epochs of STREAM are looked at. */
uint32_t clair_placement_epochs(const struct clair_placement_input *input,
				const struct clair_stream *stream);

/* What the looked-at epochs say of one sample. */
#define CLAIR_PLACEMENT_READERS 8u
struct clair_reads {
	uint16_t node[CLAIR_PLACEMENT_READERS]; /* of the first reads; [0] of the earliest */
	uint8_t count;                          /* of all reads, up to 255 */
	uint8_t own;                            /* of SELF's */
};
struct clair_placement_reads {
	struct clair_placement_segment {
		uint32_t end; /* in the order */
		enum clair_walk walk;
	} *segments;            /* by stream */
	struct clair_reads *of; /* by id */
	uint32_t *when;         /* by id: of the first read; free to be used after */
	uint32_t *order;        /* all samples, by stream, by first use */
	uint32_t total;
};
/* Uses P's homes on the way; they are all CLAIR_NO_NODE again after success. A sample that
 * nobody reads, or in an order that is not known, has a node by its hash at [0]. */
int clair_placement_reads_init(const struct clair_placement_input *input,
			       struct clair_placement *placement,
			       struct clair_placement_reads *reads);
void clair_placement_reads_finish(struct clair_placement_reads *reads);

extern const struct clair_policy clair_policy_home, clair_policy_nopfs;

#endif
