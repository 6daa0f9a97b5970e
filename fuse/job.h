/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_JOB_H
#define CLAIR_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "options.h"
#include "peers.h"

struct clair_mount;

/* A mount as one of several of a job (mpirun -N 1, srun --ntasks-per-node=1): its peer
 * process, and what the nodes agree on before they serve. Whatever fails costs the peers,
 * never the mount. */
struct clair_job;

/* Whether this process was started as one of several by an MPI launcher. */
bool clair_job_launched(void);
/* Starts the peer process, in the place that this process has in the MPI job, when it has one and
 * OPTIONS want peers. *LINK: the mount process's end of the link, or -1: there are none (a line on
 * stderr says why, if they were to be). */
void clair_job_start_peer(const struct clair_options *options, int *link, pid_t *peer);

/* For the command of a run in such a job: its place is the peer process's, so what would let
 * MPI_Init believe otherwise is taken out of the environment, the rank variables stay. */
void clair_job_clean_environment(void);

/* In the mount process, in this order. LINK is taken. */
int clair_job_begin(struct clair_mount *mount, int link, struct clair_job **out);
/* The catalog: true when another node walks and has sent it. */
bool clair_job_catalog(struct clair_job *job, struct clair_catalog **catalog);
/* This node has walked: the others get it. */
void clair_job_send_catalog(struct clair_job *job);
/* After the streams are made: placement, and the stage knows the others. */
void clair_job_agree(struct clair_job *job);
/* What other nodes say does not reach finder and report any more. Before the finder stops; takes
 * NULL. */
void clair_job_stop_listening(struct clair_job *job);
/* The mount ends, and the job with it. Takes NULL. */
void clair_job_bye(struct clair_job *job);
void clair_job_free(struct clair_job *job); /* after the stage; takes NULL */

/* This node's command has ended well: whether those of all others that are there have
 * too. Until then this node goes on giving what it keeps. */
bool clair_job_done(struct clair_job *job);
/* Adds "node", "nodes", "peers"; takes NULL. */
int clair_job_json(struct clair_job *job, json_t *report);
/* Every node's short report, by node; NULL without a job. */
json_t *clair_job_gather(struct clair_job *job, int timeout_ms);
/* The capacity of all nodes together, or FALLBACK without others. */
uint64_t clair_job_capacity(struct clair_job *job, uint64_t fallback);
/* The stream of FOLDER was found to have this order. Takes NULL. */
void clair_job_found(struct clair_job *job, uint32_t folder, const struct clair_words *words);

#endif
