/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PEER_LAUNCHER_H
#define CLAIR_PEER_LAUNCHER_H

#include <stdbool.h>

/* After SIGTERM in a process of an MPI job: false when it came because mpirun itself died
 * (its daemons then end what they started), true when mpirun is there and so meant it, or
 * when nothing is known of an mpirun (srun, by hand). Reads OMPI_MCA_orte_hnp_uri; takes
 * 100 ms at most. */
bool clair_launcher_lives(void);

#endif
