/* SPDX-License-Identifier: BSD-3-Clause */
/* Extended attributes: the source's own, and user.clairfs.* which tell and set. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cleanup.h"
#include "log.h"
#include "mount.h"
#include "report.h"

#define PREFIX "user.clairfs."
#define STATS_BYTES (60 << 10)
#define STATS_GROWTH 2048

static void reply_value(fuse_req_t req, const char *value, size_t length, size_t size)
{
	if (!size)
		fuse_reply_xattr(req, length);
	else if (length > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, length);
}

static void get_own(fuse_req_t req, struct clair_mount *m, uint32_t id, const char *word,
		    size_t size)
{
	const struct clair_entry *e = clair_catalog_entry(m->catalog, id);

	if (!strcmp(word, "stats") && e->kind == CLAIR_FOLDER) {
		autofree char *text = clair_report_text(m, STATS_BYTES);
		if (!text)
			fuse_reply_err(req, ENOMEM);
		else if (!size) /* it may be longer when it is asked for in earnest */
			fuse_reply_xattr(req, strlen(text) + STATS_GROWTH);
		else
			reply_value(req, text, strlen(text), size);
	} else if (!strcmp(word, "tier") && e->kind == CLAIR_FILE) {
		const char *where = clair_stage_where(m->stage, id);
		reply_value(req, where, strlen(where), size);
	} else if (e->kind == CLAIR_FOLDER && clair_options_is_order_word(word)) {
		char value[256];
		int r = clair_mount_get(m, id, word, value, sizeof value);
		if (r < 0)
			fuse_reply_err(req, r == -ENOENT ? ENODATA : -r);
		else
			reply_value(req, value, strlen(value), size);
	} else {
		fuse_reply_err(req, ENODATA);
	}
}

/* The path of ID for calls that take no descriptor. */
static int source_path(struct clair_mount *m, uint32_t id, char *path, size_t size)
{
	int n = snprintf(path, size, "/proc/self/fd/%d/", clair_source_root(m->source));

	if (clair_catalog_path(m->catalog, id, path + n, size - (size_t)n) >=
	    size - (size_t)n)
		return -ENAMETOOLONG;
	return 0;
}

void clair_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct clair_mount *m = fuse_req_userdata(req);
	char path[4200];

	clair_count_request(req, CLAIR_FUSE_GETXATTR);
	if (ino == CLAIR_ALIAS_INO) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	if (!strncmp(name, PREFIX, sizeof PREFIX - 1)) {
		get_own(req, m, clair_id(ino), name + sizeof PREFIX - 1, size);
		return;
	}
	/* ACLs are told by the mode bits; asked for by every ls -l. */
	if (!strncmp(name, "system.posix_acl_", 17) || !strcmp(name, "security.capability")) {
		fuse_reply_err(req, strncmp(name, "system", 6) ? ENODATA : EOPNOTSUPP);
		return;
	}
	int r = source_path(m, clair_id(ino), path, sizeof path);
	autofree char *value = malloc(size ? size : 1);
	if (r < 0 || !value) {
		fuse_reply_err(req, r < 0 ? -r : ENOMEM);
		return;
	}
	ssize_t n = lgetxattr(path, name, value, size);
	if (n < 0)
		fuse_reply_err(req, errno);
	else if (!size)
		fuse_reply_xattr(req, (size_t)n);
	else
		fuse_reply_buf(req, value, (size_t)n);
}

void clair_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct clair_mount *m = fuse_req_userdata(req);
	char path[4200];

	clair_count_request(req, CLAIR_FUSE_LISTXATTR);
	int r = ino == CLAIR_ALIAS_INO ? -ENODATA :
					 source_path(m, clair_id(ino), path, sizeof path);
	autofree char *value = malloc(size ? size : 1);
	if (r < 0 || !value) {
		fuse_reply_err(req, r < 0 ? -r : ENOMEM);
		return;
	}
	ssize_t n = llistxattr(path, value, size);
	if (n < 0)
		fuse_reply_err(req, errno);
	else if (!size)
		fuse_reply_xattr(req, (size_t)n);
	else
		fuse_reply_buf(req, value, (size_t)n);
}

void clair_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		       size_t size, int flags)
{
	struct clair_mount *m = fuse_req_userdata(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	char *error = NULL;

	(void)flags;
	clair_count_request(req, CLAIR_FUSE_SETXATTR);
	if (strncmp(name, PREFIX, sizeof PREFIX - 1) || ino == CLAIR_ALIAS_INO) {
		fuse_reply_err(req, EROFS);
		return;
	}
	if (ctx->uid != 0 && ctx->uid != m->uid) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if (clair_catalog_entry(m->catalog, clair_id(ino))->kind != CLAIR_FOLDER) {
		fuse_reply_err(req, ENOTSUP);
		return;
	}
	autofree char *text = strndup(value, size);
	int r = text ? clair_mount_set(m, clair_id(ino), name + sizeof PREFIX - 1, text,
				       &error) :
		       -ENOMEM;
	if (error)
		log_error("%s", error);
	free(error);
	fuse_reply_err(req, -r);
}

void clair_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	(void)ino, (void)name;
	clair_count_request(req, CLAIR_FUSE_SETXATTR);
	fuse_reply_err(req, EROFS);
}
