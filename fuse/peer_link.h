/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PEER_LINK_H
#define CLAIR_PEER_LINK_H

#include "peers.h"

/* The mount process's end of the socket to its peer process (link.h): a thread that hands
 * what comes to the peers, and a queue for what the socket does not take at once. */
struct clair_peer_link;

/* Takes SOCKET. */
int clair_peer_link_new(int socket, struct clair_peer_link **out);
/* Its sending end, for clair_peers_new. Thread-safe; never blocks. */
struct clair_transport clair_peer_link_transport(struct clair_peer_link *link);
/* From now on frames go to PEERS, and clair_peers_closed when the peer process is gone. */
int clair_peer_link_start(struct clair_peer_link *link, struct clair_peers *peers);
/* Lets what is queued go out (for a short while), closes, ends the thread. */
void clair_peer_link_free(struct clair_peer_link *link);

#endif
