/* SPDX-License-Identifier: BSD-3-Clause */
/* FUSE requests. Names and attributes come from the catalog; what is staged is never asked
 * for. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "finder.h"
#include "log.h"
#include "mount.h"
#include "trace.h"

/* Names and attributes of an immutable dataset stay valid: a day, in seconds. */
#define FOREVER 86400.0

static struct clair_mount *mount_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* --- attributes ---------------------------------------------------------------------- */

static mode_t type_of(const struct clair_entry *e)
{
	switch (e->kind) {
	case CLAIR_FOLDER:
		return S_IFDIR;
	case CLAIR_LINK:
		return S_IFLNK;
	case CLAIR_FILE:
		return S_IFREG;
	default:
		return e->count & S_IFMT ? e->count & S_IFMT : S_IFIFO;
	}
}

static bool in_groups(gid_t gid)
{
	gid_t groups[1024];
	int n = getgroups(1024, groups);

	if (gid == getegid())
		return true;
	for (int i = 0; i < n; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

/* The rights that the user has on a foreign file, as the owner's bits: its ids mean
 * nothing in the namespace of the command. */
static mode_t own_rights(struct clair_mount *m, uint32_t id, const struct stat *st)
{
	mode_t mode = st->st_mode & 07777;
	mode_t rights = st->st_uid == m->uid ? mode >> 6 & 7 :
			in_groups(st->st_gid) ? mode >> 3 & 7 :
						mode & 7;
	mode_t needed = S_ISDIR(st->st_mode) ? 5 : 4;
	char path[4096];

	/* An ACL may give more than the bits say: only then the source is asked. */
	if ((rights & needed) != needed && st->st_uid != m->uid && mode & 070 &&
	    clair_catalog_path(m->catalog, id, path, sizeof path) < sizeof path) {
		for (mode_t bit = 1; bit <= 4; bit <<= 1)
			if (!faccessat(clair_source_root(m->source), id ? path : ".",
				       (int)bit, AT_EACCESS))
				rights |= bit;
	}
	return (mode & 07077) | rights << 6;
}

int clair_mount_attr(struct clair_mount *m, uint32_t id, struct stat *st)
{
	const struct clair_entry *e = clair_catalog_entry(m->catalog, id);
	struct clair_owner owner = clair_catalog_owner(m->catalog, id);

	memset(st, 0, sizeof *st);
	st->st_mode = type_of(e) | e->mode;
	st->st_size = (off_t)e->size;
	st->st_mtim.tv_sec = e->mtime_ns / 1000000000;
	st->st_mtim.tv_nsec = e->mtime_ns % 1000000000;
	st->st_uid = owner.uid;
	st->st_gid = owner.gid;
	st->st_nlink = e->kind == CLAIR_FILE ? e->count : e->kind == CLAIR_FOLDER ? 2 : 1;
	st->st_blocks = (st->st_size + 511) / 512;
	if (e->kind == CLAIR_FILE && clair_stage_is_changed(m->stage, id)) {
		int r = clair_source_stat(m->source, id, st);
		if (r < 0)
			return r;
	}
	st->st_ino = clair_ino(id);
	st->st_ctim = st->st_atim = st->st_mtim;
	st->st_blksize = 4096;
	if (m->own_ids) {
		if (st->st_uid != m->uid || st->st_gid != m->gid)
			st->st_mode = (st->st_mode & S_IFMT) | own_rights(m, id, st);
		st->st_uid = m->uid;
		st->st_gid = m->gid;
	}
	return 0;
}

static int fill_entry(struct clair_mount *m, uint32_t id, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){ .ino = clair_ino(id), .generation = 1,
					.attr_timeout = FOREVER, .entry_timeout = FOREVER };
	return clair_mount_attr(m, id, &e->attr);
}

/* --- names ----------------------------------------------------------------------------- */

static void reply_alias_root(fuse_req_t req)
{
	struct fuse_entry_param e = { .ino = CLAIR_ALIAS_INO, .generation = 1,
				      .attr_timeout = FOREVER, .entry_timeout = FOREVER };

	e.attr.st_ino = CLAIR_ALIAS_INO;
	e.attr.st_mode = S_IFDIR | 0700;
	e.attr.st_nlink = 2;
	e.attr.st_uid = mount_of(req)->uid;
	e.attr.st_gid = mount_of(req)->gid;
	fuse_reply_entry(req, &e);
}

/* A file by its number: the same inode, below a folder that nobody watches. */
static void lookup_alias(fuse_req_t req, const char *name)
{
	struct clair_mount *m = mount_of(req);
	struct fuse_entry_param e;
	char *end;
	unsigned long id = strtoul(name, &end, 16);

	if (!*name || *end || id >= clair_catalog_count(m->catalog) ||
	    clair_catalog_entry(m->catalog, (uint32_t)id)->kind != CLAIR_FILE) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	int r = fill_entry(m, (uint32_t)id, &e);
	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	atomic_fetch_add(&m->lookups[id], 1);
	if (fuse_reply_entry(req, &e) < 0)
		atomic_fetch_sub(&m->lookups[id], 1);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct clair_mount *m = mount_of(req);
	struct fuse_entry_param e = { .entry_timeout = FOREVER };

	clair_count_request(req, CLAIR_FUSE_LOOKUP);
	if (parent == CLAIR_ALIAS_INO) {
		lookup_alias(req, name);
		return;
	}
	if (parent == FUSE_ROOT_ID && !strcmp(name, m->alias)) {
		reply_alias_root(req);
		return;
	}
	uint32_t id =
		clair_catalog_child(m->catalog, clair_id(parent), name, strlen(name));
	if (id == CLAIR_NO_ID) {
		fuse_reply_entry(req, &e); /* inode 0: the kernel remembers that, too */
		return;
	}
	int r = fill_entry(m, id, &e);
	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	atomic_fetch_add(&m->lookups[id], 1);
	if (fuse_reply_entry(req, &e) < 0)
		atomic_fetch_sub(&m->lookups[id], 1);
}

static void forget(struct clair_mount *m, fuse_ino_t ino, uint64_t count)
{
	if (ino == CLAIR_ALIAS_INO || ino == FUSE_ROOT_ID)
		return;
	uint32_t id = clair_id(ino);
	if (atomic_fetch_sub(&m->lookups[id], (uint32_t)count) == (uint32_t)count)
		clair_stage_forgot(m->stage, id);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	clair_count_request(req, CLAIR_FUSE_FORGET);
	forget(mount_of(req), ino, count);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	clair_count_request(req, CLAIR_FUSE_FORGET);
	for (size_t i = 0; i < count; i++)
		forget(mount_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct clair_mount *m = mount_of(req);
	struct stat st = { 0 };
	int r = 0;

	(void)fi;
	clair_count_request(req, CLAIR_FUSE_GETATTR);
	if (ino == CLAIR_ALIAS_INO) {
		st.st_ino = ino;
		st.st_mode = S_IFDIR | 0700;
		st.st_nlink = 2;
		st.st_uid = m->uid;
		st.st_gid = m->gid;
	} else {
		r = clair_mount_attr(m, clair_id(ino), &st);
	}
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_attr(req, &st, FOREVER);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct clair_mount *m = mount_of(req);

	clair_count_request(req, CLAIR_FUSE_READLINK);
	if (ino == CLAIR_ALIAS_INO ||
	    clair_catalog_entry(m->catalog, clair_id(ino))->kind != CLAIR_LINK)
		fuse_reply_err(req, EINVAL);
	else
		fuse_reply_readlink(req, clair_catalog_target(m->catalog, clair_id(ino)));
}

/* --- folders --------------------------------------------------------------------------- */

/* ENOSYS: from now on the kernel opens folders by itself and keeps their contents. */
static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct clair_mount *m = mount_of(req);

	clair_count_request(req, CLAIR_FUSE_OPENDIR);
	if (ino == CLAIR_ALIAS_INO) {
		fuse_reply_err(req, EACCES);
		return;
	}
	/* The walk could not list it: neither can the reader, unless that has changed. */
	if (clair_catalog_entry(m->catalog, clair_id(ino))->flags & CLAIR_UNREADABLE) {
		fuse_reply_err(req, EACCES);
		return;
	}
	fi->cache_readdir = 1;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

static size_t add_name(fuse_req_t req, char *buffer, size_t room, const char *name,
		       uint32_t id, off_t next, bool plus, bool looked_up)
{
	struct clair_mount *m = mount_of(req);
	struct fuse_entry_param e;

	if (fill_entry(m, id, &e) < 0) {
		/* Gone at the source: its name is still listed. */
		memset(&e, 0, sizeof e);
		e.attr.st_mode = type_of(clair_catalog_entry(m->catalog, id));
		e.attr.st_ino = clair_ino(id);
		looked_up = false;
	}
	if (!plus)
		return fuse_add_direntry(req, buffer, room, name, &e.attr, next);
	if (!looked_up)
		e.ino = 0;
	size_t n = fuse_add_direntry_plus(req, buffer, room, name, &e, next);
	if (looked_up && n <= room)
		atomic_fetch_add(&m->lookups[id], 1);
	return n;
}

static void read_folder(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus)
{
	struct clair_mount *m = mount_of(req);
	autofree char *buffer = malloc(size);
	size_t used = 0;

	clair_count_request(req, CLAIR_FUSE_READDIR);
	if (ino == CLAIR_ALIAS_INO || !buffer) {
		fuse_reply_err(req, buffer ? EACCES : ENOMEM);
		return;
	}
	uint32_t id = clair_id(ino);
	const struct clair_entry *e = clair_catalog_entry(m->catalog, id);
	for (off_t i = offset; i < (off_t)e->count + 2; i++) {
		uint32_t child = i == 0 ? id : i == 1 ? e->parent : e->first + (uint32_t)(i - 2);
		const char *name = i == 0 ? "." :
				   i == 1 ? ".." :
					    clair_catalog_name(m->catalog, child);
		size_t n = add_name(req, buffer + used, size - used, name, child, i + 1, plus,
				    i >= 2);
		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(req, buffer, used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	(void)fi;
	read_folder(req, ino, size, offset, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			   struct fuse_file_info *fi)
{
	(void)fi;
	read_folder(req, ino, size, offset, true);
}

/* --- files ----------------------------------------------------------------------------- */

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct clair_mount *m = mount_of(req);

	clair_count_request(req, CLAIR_FUSE_OPEN);
	if ((fi->flags & O_ACCMODE) != O_RDONLY) {
		fuse_reply_err(req, EROFS);
		return;
	}
	bool wanted = atomic_load(&m->answer_opens);
	if (!wanted && atomic_load(&m->watched)) {
		/* The kernel does not send OPEN (nor RELEASE) any more, ever. */
		fuse_reply_err(req, ENOSYS);
		return;
	}
	if (wanted && !clair_kernel_is_own(fuse_req_ctx(req)->pid)) {
		clair_stage_opened(m->stage, clair_id(ino), clair_now_ns());
		clair_finder_open(m->finder, fuse_req_ctx(req)->pid, clair_id(ino));
		clair_trace_open(m, fuse_req_ctx(req)->pid, clair_id(ino));
	}
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	struct clair_mount *m = mount_of(req);
	struct clair_bytes bytes;

	(void)fi;
	clair_count_request(req, CLAIR_FUSE_READ);
	int r = clair_stage_read(m->stage, clair_id(ino), (uint64_t)offset, size, &bytes);
	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	fuse_reply_buf(req, bytes.data, bytes.size);
	clair_stage_release(m->stage, &bytes);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct clair_mount *m = mount_of(req);
	struct statvfs st;

	(void)ino;
	clair_count_request(req, CLAIR_FUSE_STATFS);
	if (fstatvfs(clair_source_root(m->source), &st) < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_statfs(req, &st);
}

/* --- changes: not through this mount --------------------------------------------------- */

static void refuse(fuse_req_t req)
{
	clair_count_request(req, CLAIR_FUSE_OTHER);
	fuse_reply_err(req, EROFS);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
		       struct fuse_file_info *fi)
{
	(void)ino, (void)st, (void)set, (void)fi;
	clair_count_request(req, CLAIR_FUSE_SETATTR);
	fuse_reply_err(req, EROFS);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		     dev_t rdev)
{
	(void)parent, (void)name, (void)mode, (void)rdev;
	refuse(req);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	refuse(req);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	refuse(req);
}

static void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	(void)link, (void)parent, (void)name;
	refuse(req);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
		      fuse_ino_t new_parent, const char *new_name, unsigned flags)
{
	(void)parent, (void)name, (void)new_parent, (void)new_name, (void)flags;
	refuse(req);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	(void)ino, (void)parent, (void)name;
	refuse(req);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	(void)parent, (void)name, (void)mode, (void)fi;
	refuse(req);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size,
		     off_t offset, struct fuse_file_info *fi)
{
	struct clair_mount *m = mount_of(req); /* REQ ends with the reply */

	(void)data, (void)size, (void)offset;
	refuse(req);
	/* Of a shared mapping: the kernel keeps the refused bytes in its page cache. */
	if (fi->writepage)
		clair_stage_spoiled(m->stage, clair_id(ino));
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
			 struct fuse_file_info *fi)
{
	(void)ino, (void)mode, (void)offset, (void)length, (void)fi;
	refuse(req);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/* Pages of pushed files stay valid whatever attributes are asked for. */
	conn->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
	/* Else the kernel itself empties what is opened with O_TRUNC, as nobody is asked. */
	conn->want &= ~(unsigned)FUSE_CAP_ATOMIC_O_TRUNC;
	/* Replies come from memory. */
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE);
	conn->want |= conn->capable &
		      (FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_READDIRPLUS |
		       FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ |
		       FUSE_CAP_ASYNC_DIO | FUSE_CAP_EXPLICIT_INVAL_DATA);
	/* Loaders list folders to open what they find: attributes with the names. */
	conn->want &= ~(unsigned)FUSE_CAP_READDIRPLUS_AUTO;
	conn->time_gran = 1;
	conn->max_background = 128;
}

const struct fuse_lowlevel_ops clair_fuse_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_unlink,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.statfs = op_statfs,
	.setxattr = clair_op_setxattr,
	.getxattr = clair_op_getxattr,
	.listxattr = clair_op_listxattr,
	.removexattr = clair_op_removexattr,
	.create = op_create,
	.fallocate = op_fallocate,
};
