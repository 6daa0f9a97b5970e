/* SPDX-License-Identifier: BSD-3-Clause */
/* The parallel walk: threads list folders from one queue; then the listings are laid out
 * breadth first, so that ids depend on the source only and not on the threads. */
#include "catalog_internal.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"

#define DEFAULT_THREADS 16 /* a PFS's metadata server answers in parallel */
#define PROGRESS_EVERY 4096

struct raw {
	struct clair_entry entry; /* name and target: offsets into the listing's names */
	uint32_t uid, gid;
	struct listing *folder; /* of a folder */
};

/* One folder's contents, filled by one thread. */
struct listing {
	struct listing *next; /* in the queue */
	struct listing *parent;
	uint32_t at; /* its place in the parent's entries */
	struct raw *entries;
	uint32_t count, room;
	char *names;
	size_t names_size, names_room;
	bool unreadable;
};

struct walk {
	int root_fd;
	clair_walk_progress *progress;
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t more;
	/* Under lock. */
	struct listing *queue;
	uint64_t waiting; /* folders in the queue or being listed */
	uint64_t entries, told;
	bool telling;
	int error;
};

static void listing_free(struct listing *l)
{
	if (!l)
		return;
	free(l->entries);
	free(l->names);
	free(l);
}

static int add_name(struct listing *l, const char *name, size_t n, uint32_t *offset)
{
	if (l->names_size + n + 1 > l->names_room) {
		size_t room = (l->names_size + n + 1) * 2;
		char *names = realloc(l->names, room);
		if (!names)
			return -ENOMEM;
		l->names = names;
		l->names_room = room;
	}
	if (l->names_size > UINT32_MAX)
		return -EOVERFLOW;
	*offset = (uint32_t)l->names_size;
	memcpy(l->names + l->names_size, name, n);
	l->names[l->names_size + n] = '\0';
	l->names_size += n + 1;
	return 0;
}

static enum clair_kind kind_of(mode_t mode)
{
	if (S_ISREG(mode))
		return CLAIR_FILE;
	if (S_ISDIR(mode))
		return CLAIR_FOLDER;
	return S_ISLNK(mode) ? CLAIR_LINK : CLAIR_SPECIAL;
}

static void fill_entry(struct raw *raw, const struct stat *st)
{
	raw->entry.size = S_ISREG(st->st_mode) || S_ISLNK(st->st_mode) ? st->st_size : 0;
	raw->entry.mtime_ns = st->st_mtim.tv_sec * 1000000000LL + st->st_mtim.tv_nsec;
	raw->entry.mode = st->st_mode & 07777;
	raw->entry.kind = kind_of(st->st_mode);
	/* A special file's type is kept where a regular one has its links. */
	raw->entry.count = S_ISREG(st->st_mode) ? (uint32_t)st->st_nlink :
			   raw->entry.kind == CLAIR_SPECIAL ? st->st_mode & S_IFMT :
							      0;
	raw->uid = st->st_uid;
	raw->gid = st->st_gid;
}

static int add_entry(struct listing *l, int dir, const char *name)
{
	struct stat st;
	char target[PATH_MAX];

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno; /* gone since it was listed */
	if (l->count == l->room) {
		uint32_t room = l->room ? l->room * 2 : 32;
		struct raw *entries = realloc(l->entries, room * sizeof *entries);
		if (!entries)
			return -ENOMEM;
		l->entries = entries;
		l->room = room;
	}
	struct raw *raw = &l->entries[l->count];
	memset(raw, 0, sizeof *raw);
	fill_entry(raw, &st);
	int r = add_name(l, name, strlen(name), &raw->entry.name);
	if (r == 0 && S_ISLNK(st.st_mode)) {
		ssize_t n = readlinkat(dir, name, target, sizeof target);
		if (n < 0)
			return -errno;
		raw->entry.size = n;
		r = add_name(l, target, n, &raw->entry.first);
	}
	if (r == 0)
		l->count++;
	return r;
}

/* The folder's descriptor; its path is put together from its parents' listings. */
static int open_listing(struct walk *w, const struct listing *l)
{
	char path[PATH_MAX];
	size_t end = sizeof path - 1;

	path[end] = '\0';
	for (; l->parent; l = l->parent) {
		const char *name =
			l->parent->names + l->parent->entries[l->at].entry.name;
		size_t n = strlen(name);
		if (n + 1 > end)
			return -ENAMETOOLONG;
		end -= n;
		memcpy(path + end, name, n);
		path[--end] = '/';
	}
	const char *relative = path[end] ? path + end + 1 : ".";
	int fd = openat(w->root_fd, relative,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int list_folder(struct walk *w, struct listing *l)
{
	int fd = open_listing(w, l);

	if (fd < 0) {
		l->unreadable = true;
		/* Shown, but empty to us; the root must be readable. */
		return l->parent ? 0 : fd;
	}
	autoclosedir DIR *dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	for (;;) {
		errno = 0;
		const struct dirent *d = readdir(dir);
		if (!d && errno) {
			l->unreadable = true;
			return l->parent ? 0 : -errno;
		}
		if (!d)
			return 0;
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		int r = add_entry(l, dirfd(dir), d->d_name);
		if (r == -EACCES) { /* r-- but not x: names without attributes */
			l->unreadable = true;
			return 0;
		}
		if (r < 0)
			return r;
	}
}

static int make_subfolders(struct listing *l, struct listing **out, uint64_t *count)
{
	for (uint32_t i = 0; i < l->count; i++) {
		if (l->entries[i].entry.kind != CLAIR_FOLDER)
			continue;
		struct listing *sub = calloc(1, sizeof *sub);
		if (!sub)
			return -ENOMEM;
		sub->parent = l;
		sub->at = i;
		l->entries[i].folder = sub;
		sub->next = *out;
		*out = sub;
		++*count;
	}
	return 0;
}

static void tell(struct walk *w)
{
	if (!w->progress || w->telling || w->entries - w->told < PROGRESS_EVERY)
		return;
	uint64_t entries = w->entries, folders = w->waiting;
	w->told = entries;
	w->telling = true;
	pthread_mutex_unlock(&w->lock);
	w->progress(w->arg, entries, folders);
	pthread_mutex_lock(&w->lock);
	w->telling = false;
}

static void *walk_thread(void *p)
{
	struct walk *w = p;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (!w->queue && w->waiting && !w->error)
			pthread_cond_wait(&w->more, &w->lock);
		if (!w->queue || w->error)
			break;
		struct listing *l = w->queue, *subs = NULL;
		uint64_t count = 0;
		w->queue = l->next;
		pthread_mutex_unlock(&w->lock);
		int r = list_folder(w, l);
		if (r == 0)
			r = make_subfolders(l, &subs, &count);
		pthread_mutex_lock(&w->lock);
		if (r < 0 && !w->error)
			w->error = r;
		while (subs) {
			struct listing *next = subs->next;
			subs->next = w->queue;
			w->queue = subs;
			subs = next;
		}
		w->waiting += count;
		w->waiting--;
		w->entries += l->count;
		if (count || !w->waiting || w->error)
			pthread_cond_broadcast(&w->more);
		tell(w);
	}
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* --- laying out ------------------------------------------------------------------- */

static int owner_index(struct clair_catalog *c, uint32_t uid, uint32_t gid, uint16_t *out)
{
	for (uint32_t i = c->owner_count; i-- > 0;) {
		if (c->owners[i].uid == uid && c->owners[i].gid == gid) {
			*out = (uint16_t)i;
			return 0;
		}
	}
	if (c->owner_count > UINT16_MAX)
		return -EOVERFLOW;
	struct clair_owner *owners =
		realloc(c->owners, (c->owner_count + 1) * sizeof *owners);
	if (!owners)
		return -ENOMEM;
	c->owners = owners;
	owners[c->owner_count] = (struct clair_owner){ uid, gid };
	*out = (uint16_t)c->owner_count++;
	return 0;
}

static int lay_out_children(struct clair_catalog *c, uint32_t id, struct listing *l,
			    struct listing **folders)
{
	struct clair_entry *e = &c->entries[id];

	e->first = c->count;
	e->count = l->count;
	if (l->unreadable)
		e->flags |= CLAIR_UNREADABLE;
	if (c->names_size + l->names_size > UINT32_MAX)
		return -EOVERFLOW;
	memcpy(c->names + c->names_size, l->names, l->names_size);
	for (uint32_t i = 0; i < l->count; i++) {
		struct raw *raw = &l->entries[i];
		struct clair_entry *child = &c->entries[c->count];

		*child = raw->entry;
		child->parent = id;
		child->name += (uint32_t)c->names_size;
		if (child->kind == CLAIR_LINK)
			child->first += (uint32_t)c->names_size;
		int r = owner_index(c, raw->uid, raw->gid, &child->owner);
		if (r < 0)
			return r;
		folders[c->count++] = raw->folder;
		raw->folder = NULL;
	}
	c->names_size += l->names_size;
	return 0;
}

static void free_tree(struct listing *l)
{
	if (!l)
		return;
	for (uint32_t i = 0; i < l->count; i++)
		free_tree(l->entries[i].folder);
	listing_free(l);
}

static void sum_names(const struct listing *l, size_t *size)
{
	*size += l->names_size;
	for (uint32_t i = 0; i < l->count; i++)
		if (l->entries[i].folder)
			sum_names(l->entries[i].folder, size);
}

/* Frees the listings as it goes. */
static int lay_out(struct walk *w, struct listing *root, const struct stat *st,
		   struct clair_catalog *c)
{
	size_t names = 1;
	uint64_t count = w->entries + 1;
	int r = 0;

	if (count >= CLAIR_NO_ID)
		return -EOVERFLOW;
	sum_names(root, &names);
	struct listing **folders = calloc(count, sizeof(struct listing *));
	c->entries = calloc(count, sizeof *c->entries);
	c->names = malloc(names);
	if (!folders || !c->entries || !c->names) {
		free(folders);
		return -ENOMEM;
	}
	struct raw top = { 0 };
	fill_entry(&top, st);
	c->names[0] = '\0'; /* the root's name */
	c->names_size = 1;
	c->entries[0] = top.entry;
	r = owner_index(c, top.uid, top.gid, &c->entries[0].owner);
	folders[0] = root;
	c->count = 1;
	for (uint32_t id = 0; id < c->count && r == 0; id++) {
		if (!folders[id])
			continue;
		r = lay_out_children(c, id, folders[id], folders);
		if (id) /* the root is the caller's */
			listing_free(folders[id]);
		folders[id] = NULL;
	}
	for (uint32_t id = 1; r < 0 && id < c->count; id++)
		free_tree(folders[id]);
	free(folders);
	return r;
}

static void run_threads(struct walk *w, unsigned threads)
{
	pthread_t ids[256];
	unsigned started = 0;

	if (threads == 0)
		threads = DEFAULT_THREADS;
	if (threads > 256)
		threads = 256;
	while (started + 1 < threads &&
	       !pthread_create(&ids[started], NULL, walk_thread, w))
		started++;
	walk_thread(w);
	while (started)
		pthread_join(ids[--started], NULL);
}

int clair_catalog_walk(int root_fd, unsigned threads, clair_walk_progress *progress,
		       void *arg, struct clair_catalog **out)
{
	struct stat st;
	struct walk w = { .root_fd = root_fd, .progress = progress, .arg = arg,
			  .lock = PTHREAD_MUTEX_INITIALIZER,
			  .more = PTHREAD_COND_INITIALIZER };
	struct listing *root = calloc(1, sizeof *root);
	struct clair_catalog *c = calloc(1, sizeof *c);
	int r = -ENOMEM;

	if (!root || !c)
		goto end;
	if (fstat(root_fd, &st) < 0) {
		r = -errno;
		goto end;
	}
	c->root_ino = st.st_ino;
	w.queue = root;
	w.waiting = 1;
	run_threads(&w, threads);
	r = w.error;
	if (r == 0)
		r = lay_out(&w, root, &st, c);
	if (r == 0)
		r = clair_catalog_complete(c, true);
	if (r == 0)
		*out = take_ptr(c);
end:
	free_tree(root);
	clair_catalog_free(c);
	return r;
}
