/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_MODEL_H
#define CLAIR_MODEL_H

#include <stdint.h>

/* What a fetch costs from each place (the model of Dryden et al., SC'21), kept up to date by
 * what fetches did cost. Bytes, seconds, bytes/s. No I/O, no locks: the owner guards it. */

#define CLAIR_CURVE_POINTS 16u

/* A bandwidth of all clients (or threads) together, by how many they are: t, r and w of the
 * paper. Linear between its points, constant before the first and after the last.
 * Zero-initialised: not known. */
struct clair_curve {
	struct {
		double clients, rate;
	} at[CLAIR_CURVE_POINTS]; /* clients ascending */
	uint32_t count;
};

/* 0 when it is not known. */
double clair_curve_rate(const struct clair_curve *curve, double clients);
/* Puts a point there, or moves the one that is there. 0, -EINVAL (both must be positive
 * numbers), -ENOSPC. */
int clair_curve_set(struct clair_curve *curve, double clients, double rate);

/* In the order of preference between equals. */
enum clair_place {
	CLAIR_PLACE_RAM,
	CLAIR_PLACE_CACHE, /* a local directory */
	CLAIR_PLACE_PEER_RAM,
	CLAIR_PLACE_PEER_CACHE,
	CLAIR_PLACE_PFS,
	CLAIR_PLACES,
};
const char *clair_place_name(enum clair_place place); /* "ram", "cache", "peer-ram", … */

/* A storage class: THREADS (p) fetch at a time, each gets its part of the bandwidth. */
struct clair_model_class {
	struct clair_curve read, write;
	double threads; /* 0 is 1 */
};

struct clair_model {
	double compute;         /* c: what training consumes */
	double preprocess;      /* beta; 0: at once, as for all rates below */
	double link;            /* b_c: between two nodes */
	double pfs_link;        /* b_fs: of one node to the PFS */
	struct clair_curve pfs; /* t */
	struct clair_model_class staging, ram, cache;
};

/* Seconds that BYTES take from PLACE with CLIENTS (gamma, of the job; at least 1) reading
 * the PFS; HUGE_VAL when nothing is known of the way. A class's bandwidth is taken to be the
 * same on all nodes. */
double clair_model_fetch(const struct clair_model *model, enum clair_place place,
			 uint64_t bytes, double clients);
/* Seconds to preprocess and put BYTES into the staging buffer. */
double clair_model_write(const struct clair_model *model, uint64_t bytes);
/* Seconds that training takes for BYTES. */
double clair_model_consume(const struct clair_model *model, uint64_t bytes);
/* The fastest of the places in WHERE (bits 1 << place) that are known; of places that are
 * not known the first; CLAIR_PLACES when WHERE is empty. */
enum clair_place clair_model_choose(const struct clair_model *model, unsigned where,
				    uint64_t bytes, double clients);

/* One fetch has taken SECONDS. Moves the bandwidth that the model holds responsible (the
 * narrowest on the way; a link between nodes of which nothing was known, when it was slower
 * than the class) by 1 - exp(-SECONDS / MEMORY) of the difference: a mean that forgets with
 * the time spent fetching, however that was cut into fetches. What makes no sense (nothing,
 * no time) is left out. */
#define CLAIR_MODEL_MEMORY 2.0 /* seconds */
void clair_model_observe(struct clair_model *model, enum clair_place place, uint64_t bytes,
			 double seconds, double clients);

#endif
