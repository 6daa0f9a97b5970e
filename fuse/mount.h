/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_MOUNT_H
#define CLAIR_MOUNT_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "catalog.h"
#include "options.h"
#include "source.h"
#include "stage.h"
#include "stats.h"

/* What the parts of the mount process share: made by daemon.c before the first request,
 * constant after that unless it says otherwise. */
struct clair_mount {
	const struct clair_options *options;
	char *source_path, *mountpoint; /* absolute */
	struct clair_catalog *catalog;
	struct clair_source *source;
	struct clair_stage *stage;
	struct clair_job *job;       /* the other nodes, or NULL */
	struct clair_keeper *_Atomic keeper; /* once it is started */
	struct clair_disk **disks;
	size_t disk_count;
	struct clair_stats stats;
	struct fuse_session *session;
	/* The mount's root as the daemon reaches it: O_PATH, or -1 (by mountpoint). May
	 * become -1 once, when the mount is given up. */
	_Atomic int root_fd;
	char alias[32];  /* the hidden folder in the root: the same files by number */
	bool own_ids;    /* an ordinary user: foreign ids are reported as the own ones */
	uid_t uid;
	gid_t gid;
	_Atomic uint32_t *lookups; /* by id: how often the kernel holds it */
	/* Opens are answered (they bring the opener) while somebody wants to see them, or
	 * where inotify cannot watch. */
	_Atomic bool answer_opens;
	_Atomic bool unwatched; /* inotify has no room: opens are answered for good */
	_Atomic bool watched;   /* all folders are; until then nobody knows which it will be */
	struct clair_watch *watch;   /* once it is started */
	struct clair_finder *finder; /* or NULL: the order was given */
	_Atomic int trace; /* a socket that wants to see opens, or 0 */
	_Atomic bool paused; /* before an unmount: nothing is pushed or dropped */
};

/* FUSE inode numbers: an entry's id + 1; the hidden folder is above all of them. */
#define CLAIR_ALIAS_INO (1ull << 40)

static inline fuse_ino_t clair_ino(uint32_t id)
{
	return (fuse_ino_t)id + 1;
}

static inline uint32_t clair_id(fuse_ino_t ino)
{
	return (uint32_t)(ino - 1);
}

/* ops.c: the table for fuse_session_new; userdata is the struct clair_mount. */
extern const struct fuse_lowlevel_ops clair_fuse_ops;
/* Attributes as the mount shows them. */
int clair_mount_attr(struct clair_mount *mount, uint32_t id, struct stat *st);

/* ops_xattr.c */
void clair_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void clair_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void clair_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		       size_t size, int flags);
void clair_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* kernel.c: what the stage calls; self is the struct clair_mount. */
extern const struct clair_kernel clair_mount_kernel;
/* Whether thread TID of the daemon itself made a request (its own lookups). */
bool clair_kernel_is_own(pid_t tid);
/* A detached clone of the mount (root), so that the daemon's opens do not make it busy: an
 * O_PATH descriptor, or -1 where that does not work. */
int clair_kernel_clone(const char *mountpoint);

/* settings.c: WORD=VALUE of the stream of FOLDER, at run time. 0; -EINVAL with *error;
 * other errno. */
int clair_mount_set(struct clair_mount *mount, uint32_t folder, const char *word,
		    const char *value, char **error);
/* The value that a word has for the stream of FOLDER; -ENOENT when it has none. */
int clair_mount_get(struct clair_mount *mount, uint32_t folder, const char *word,
		    char *value, size_t size);
/* Makes the streams that the options describe. */
int clair_mount_streams(struct clair_mount *mount, char **error);

static inline void clair_count_request(fuse_req_t req, enum clair_fuse_request kind)
{
	struct clair_mount *m = fuse_req_userdata(req);
	bool own = clair_kernel_is_own(fuse_req_ctx(req)->pid);

	clair_count(own ? &m->stats.own[kind] : &m->stats.fuse[kind], 1);
}

#endif
