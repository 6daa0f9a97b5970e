/* SPDX-License-Identifier: BSD-3-Clause */
/* The parallel walk: threads list folders, and stat what is in them in chunks, so that one
 * huge folder keeps all of them busy; then the listings are laid out breadth first, so
 * that ids depend on the source only and not on the threads. */
#include "catalog_internal.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"

#define DEFAULT_THREADS 16 /* a PFS's metadata server answers in parallel */
#define PROGRESS_EVERY 4096
#define CHUNK 512 /* entries a thread stats at a time */

#define TRIES 4
#define GONE 0xff /* kind of an entry that vanished after it was listed */

struct bytes {
	char *at;
	size_t size, room;
};

/* One folder's contents. Filled by the thread that lists it, then by those that stat. */
struct listing {
	struct listing *parent;
	struct listing *sibling; /* the next folder of the parent, in order */
	struct listing *subs;    /* its own folders, in order */
	struct listing *next;    /* while it is laid out */
	uint32_t at;             /* its place in the parent's entries */
	uint32_t id;             /* while it is laid out */
	DIR *dir;                /* until all is stat'ed */
	struct clair_entry *entries; /* name: offset into names; a link's first: into targets */
	uint32_t count, room;
	struct bytes names;
	/* Under the walk's lock. */
	struct bytes targets;
	uint32_t chunks; /* still to be stat'ed */
	bool unreadable;
};

/* Lists a folder (BEGIN = END = 0), or stats entries [BEGIN, END) of it. */
struct job {
	struct job *next;
	struct listing *listing;
	uint32_t begin, end;
};

struct walk {
	int root_fd;
	clair_walk_progress *progress;
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t more;
	/* Under lock. Chunks go before folders: that bounds the open folders. */
	struct job *chunks, *folders;
	uint64_t waiting; /* jobs in the queues or at work */
	uint64_t entries, names, folders_left, told;
	bool telling;
	int error;
	struct clair_catalog *catalog; /* its owners */
};

/* Whether what gave R may be tried again: a PFS that stumbles, or no descriptor left. Waits
 * first, before try number TRY (1, 2, …). */
static bool again(int r, int try)
{
	struct timespec t = { .tv_nsec = 1000000L << (3 * try) }; /* 8, 64, 512 ms */

	if (try >= TRIES ||
	    (r != -EIO && r != -ESTALE && r != -ETIMEDOUT && r != -EINTR && r != -EAGAIN &&
	     r != -EMFILE && r != -ENFILE))
		return false;
	nanosleep(&t, NULL);
	return true;
}

static void free_tree(struct listing *l)
{
	while (l) {
		struct listing *sibling = l->sibling;

		free_tree(l->subs);
		if (l->dir)
			closedir(l->dir);
		free(l->entries);
		free(l->names.at);
		free(l->targets.at);
		free(l);
		l = sibling;
	}
}

static int add_text(struct bytes *b, const char *text, size_t n, uint32_t *offset)
{
	if (b->size + n + 1 > b->room) {
		size_t room = (b->size + n + 1) * 3 / 2 + 64;
		char *at = realloc(b->at, room);
		if (!at)
			return -ENOMEM;
		b->at = at;
		b->room = room;
	}
	if (b->size > UINT32_MAX)
		return -EOVERFLOW;
	*offset = (uint32_t)b->size;
	memcpy(b->at + b->size, text, n);
	b->at[b->size + n] = '\0';
	b->size += n + 1;
	return 0;
}

static int add_name(struct listing *l, const char *name)
{
	if (l->count == l->room) {
		uint64_t room = l->room ? l->room + l->room / 2ull : 32;
		if (room >= CLAIR_NO_ID)
			return -EOVERFLOW;
		struct clair_entry *entries = realloc(l->entries, room * sizeof *entries);
		if (!entries)
			return -ENOMEM;
		l->entries = entries;
		l->room = (uint32_t)room;
	}
	struct clair_entry *e = &l->entries[l->count];
	memset(e, 0, sizeof *e);
	int r = add_text(&l->names, name, strlen(name), &e->name);
	if (r == 0)
		l->count++;
	return r;
}

/* --- attributes --------------------------------------------------------------------- */

static enum clair_kind kind_of(mode_t mode)
{
	if (S_ISREG(mode))
		return CLAIR_FILE;
	if (S_ISDIR(mode))
		return CLAIR_FOLDER;
	return S_ISLNK(mode) ? CLAIR_LINK : CLAIR_SPECIAL;
}

static void fill_entry(struct clair_entry *e, const struct stat *st)
{
	e->size = S_ISREG(st->st_mode) || S_ISLNK(st->st_mode) ? (uint64_t)st->st_size : 0;
	e->mtime_ns = st->st_mtim.tv_sec * 1000000000LL + st->st_mtim.tv_nsec;
	e->mode = st->st_mode & 07777;
	e->kind = kind_of(st->st_mode);
	/* A special file's type is kept where a regular one has its links. */
	e->count = S_ISREG(st->st_mode) ? (uint32_t)st->st_nlink :
		   e->kind == CLAIR_SPECIAL ? st->st_mode & S_IFMT :
					      0;
}

/* Under the walk's lock while threads run. */
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

static int read_target(struct walk *w, struct listing *l, struct clair_entry *e)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dirfd(l->dir), l->names.at + e->name, target, sizeof target);

	if (n < 0)
		return -errno;
	e->size = (uint64_t)n;
	autolock(&w->lock);
	return add_text(&l->targets, target, (size_t)n, &e->first);
}

/* The owner that this thread met last: few folders have more than one. */
struct last_owner {
	uint32_t uid, gid;
	uint16_t index;
	bool known;
};

static int stat_entry(struct walk *w, struct listing *l, struct clair_entry *e,
		      struct last_owner *last)
{
	struct stat st;

	if (fstatat(dirfd(l->dir), l->names.at + e->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	fill_entry(e, &st);
	if (!last->known || last->uid != st.st_uid || last->gid != st.st_gid) {
		autolock(&w->lock);
		int r = owner_index(w->catalog, st.st_uid, st.st_gid, &last->index);
		if (r < 0)
			return r;
		last->uid = st.st_uid;
		last->gid = st.st_gid;
		last->known = true;
	}
	e->owner = last->index;
	return e->kind == CLAIR_LINK ? read_target(w, l, e) : 0;
}

static int stat_entries(struct walk *w, struct listing *l, uint32_t begin, uint32_t end)
{
	struct last_owner last = { 0 };

	for (uint32_t i = begin; i < end; i++) {
		int r = stat_entry(w, l, &l->entries[i], &last);

		for (int try = 1; again(r, try); try++)
			r = stat_entry(w, l, &l->entries[i], &last);
		if (r == -ENOENT || r == -EACCES)
			l->entries[i].kind = GONE;
		else if (r < 0)
			return r;
		if (r == -EACCES) { /* r-- but not x: names without attributes */
			autolock(&w->lock);
			l->unreadable = true;
		}
	}
	return 0;
}

/* --- folders ------------------------------------------------------------------------ */

/* The folder's descriptor; its path is put together from its parents' listings. */
static int open_listing(const struct walk *w, const struct listing *l)
{
	char path[PATH_MAX];
	size_t end = sizeof path - 1;

	path[end] = '\0';
	for (; l->parent; l = l->parent) {
		const char *name = l->parent->names.at + l->parent->entries[l->at].name;
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

static int read_names(struct listing *l)
{
	for (;;) {
		errno = 0;
		const struct dirent *d = readdir(l->dir);

		if (!d)
			return -errno;
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		int r = add_name(l, d->d_name);
		if (r < 0)
			return r;
	}
}

static int list_once(const struct walk *w, struct listing *l)
{
	int fd = open_listing(w, l);

	l->count = 0;
	l->names.size = 0;
	if (l->dir)
		closedir(l->dir);
	l->dir = fd < 0 ? NULL : fdopendir(fd);
	if (fd >= 0 && !l->dir) {
		close(fd);
		return -ENOMEM;
	}
	return fd < 0 ? fd : read_names(l);
}

/* Names only. A folder that the user may not read is shown, but empty to us or cut; the root
 * must be readable. */
static int list_folder(const struct walk *w, struct listing *l)
{
	int r = list_once(w, l);

	for (int try = 1; again(r, try); try++)
		r = list_once(w, l);
	if (r == 0 || !l->parent ||
	    (r != -EACCES && r != -EPERM && r != -ENOENT && r != -ENOTDIR && r != -ELOOP &&
	     r != -ENAMETOOLONG))
		return r;
	l->unreadable = true;
	return 0;
}

/* All is known of L: what vanished is left out, its folders become listings. */
static int finish_listing(struct listing *l)
{
	uint32_t kept = 0;

	if (l->dir)
		closedir(l->dir);
	l->dir = NULL;
	for (uint32_t i = 0; i < l->count; i++)
		if (l->entries[i].kind != GONE)
			l->entries[kept++] = l->entries[i];
	l->count = kept;
	if (kept < l->room) {
		struct clair_entry *entries =
			realloc(l->entries, (kept ? kept : 1) * sizeof *entries);
		l->entries = entries ? entries : l->entries;
	}
	for (uint32_t i = kept; i-- > 0;) {
		if (l->entries[i].kind != CLAIR_FOLDER)
			continue;
		struct listing *sub = calloc(1, sizeof *sub);
		if (!sub)
			return -ENOMEM;
		sub->parent = l;
		sub->at = i;
		sub->sibling = l->subs;
		l->subs = sub;
	}
	return 0;
}

/* --- threads ------------------------------------------------------------------------ */

static int push_job(struct walk *w, struct listing *l, uint32_t begin, uint32_t end)
{
	struct job *job = malloc(sizeof *job);

	if (!job)
		return -ENOMEM;
	struct job **queue = end ? &w->chunks : &w->folders;
	*job = (struct job){ *queue, l, begin, end };
	*queue = job;
	w->waiting++;
	w->folders_left += !end;
	return 0;
}

static struct job *pop_job(struct walk *w)
{
	struct job **queue = w->chunks ? &w->chunks : &w->folders;
	struct job *job = *queue;

	if (job)
		*queue = job->next;
	return job;
}

static void tell(struct walk *w)
{
	if (!w->progress || w->telling || w->entries - w->told < PROGRESS_EVERY)
		return;
	uint64_t entries = w->entries, folders = w->folders_left;
	w->told = entries;
	w->telling = true;
	pthread_mutex_unlock(&w->lock);
	w->progress(w->arg, entries, folders);
	pthread_mutex_lock(&w->lock);
	w->telling = false;
}

/* Under the lock, when the last chunk of L is done. */
static int end_listing(struct walk *w, struct listing *l)
{
	pthread_mutex_unlock(&w->lock);
	int r = finish_listing(l);
	pthread_mutex_lock(&w->lock);
	w->entries += l->count;
	w->names += l->names.size + l->targets.size;
	w->folders_left--;
	for (struct listing *sub = l->subs; sub && r == 0; sub = sub->sibling)
		r = push_job(w, sub, 0, 0);
	tell(w);
	return r;
}

/* Under the lock, which is released meanwhile. */
static int do_job(struct walk *w, const struct job *job)
{
	struct listing *l = job->listing;
	int r;

	pthread_mutex_unlock(&w->lock);
	r = job->end ? stat_entries(w, l, job->begin, job->end) : list_folder(w, l);
	if (r == 0 && !job->end && l->count <= CHUNK)
		r = stat_entries(w, l, 0, l->count);
	pthread_mutex_lock(&w->lock);
	if (r < 0)
		return r;
	if (!job->end && l->count > CHUNK) {
		l->chunks = (l->count + CHUNK - 1) / CHUNK;
		for (uint32_t i = 0; i < l->count && r == 0; i += CHUNK)
			r = push_job(w, l, i, l->count - i > CHUNK ? i + CHUNK : l->count);
		return r;
	}
	if (job->end && --l->chunks)
		return 0;
	return end_listing(w, l);
}

static void *walk_thread(void *p)
{
	struct walk *w = p;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (!w->chunks && !w->folders && w->waiting && !w->error)
			pthread_cond_wait(&w->more, &w->lock);
		struct job *job = w->error ? NULL : pop_job(w);
		if (!job)
			break;
		uint64_t before = w->waiting;
		int r = do_job(w, job);
		free(job);
		if (r < 0 && !w->error)
			w->error = r;
		w->waiting--;
		if (w->waiting >= before || !w->waiting || w->error || w->folders ||
		    w->chunks)
			pthread_cond_broadcast(&w->more);
	}
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&w->lock);
	return NULL;
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
	for (struct job *job; (job = pop_job(w));)
		free(job);
}

/* --- laying out --------------------------------------------------------------------- */

static void lay_out_children(struct clair_catalog *c, struct listing *l)
{
	struct clair_entry *e = &c->entries[l->id];
	size_t base = c->names_size;

	e->first = c->count;
	e->count = l->count;
	if (l->unreadable)
		e->flags |= CLAIR_UNREADABLE;
	if (l->names.size)
		memcpy(c->names + base, l->names.at, l->names.size);
	if (l->targets.size)
		memcpy(c->names + base + l->names.size, l->targets.at, l->targets.size);
	c->names_size += l->names.size + l->targets.size;
	for (uint32_t i = 0; i < l->count; i++) {
		struct clair_entry *child = &c->entries[c->count++];

		*child = l->entries[i];
		child->parent = l->id;
		child->name += (uint32_t)base;
		if (child->kind == CLAIR_LINK)
			child->first += (uint32_t)(base + l->names.size);
	}
}

/* Gives back what the listings hold as it goes. */
static int lay_out(const struct walk *w, struct listing *root, const struct stat *st,
		   struct clair_catalog *c)
{
	struct listing *last = root;

	if (w->entries + 1 >= CLAIR_NO_ID || w->names + 1 > UINT32_MAX)
		return -EOVERFLOW;
	c->entries = calloc(w->entries + 1, sizeof *c->entries);
	c->names = malloc(w->names + 1);
	if (!c->entries || !c->names)
		return -ENOMEM;
	fill_entry(&c->entries[0], st);
	int r = owner_index(c, st->st_uid, st->st_gid, &c->entries[0].owner);
	if (r < 0)
		return r;
	c->names[0] = '\0'; /* the root's name */
	c->names_size = 1;
	c->count = 1;
	for (struct listing *l = root; l; l = l->next) {
		uint32_t first = c->count;

		lay_out_children(c, l);
		for (struct listing *sub = l->subs; sub; sub = sub->sibling) {
			sub->id = first + sub->at;
			last = last->next = sub;
		}
		free(take_ptr(l->entries));
		free(take_ptr(l->names.at));
		free(take_ptr(l->targets.at));
	}
	assert(c->count == w->entries + 1);
	return 0;
}

int clair_catalog_walk(int root_fd, unsigned threads, clair_walk_progress *progress,
		       void *arg, struct clair_catalog **out)
{
	struct stat st;
	struct listing *root = calloc(1, sizeof *root);
	struct clair_catalog *c = calloc(1, sizeof *c);
	struct walk w = { .root_fd = root_fd, .progress = progress, .arg = arg,
			  .lock = PTHREAD_MUTEX_INITIALIZER,
			  .more = PTHREAD_COND_INITIALIZER, .catalog = c };
	int r = -ENOMEM;

	if (!root || !c)
		goto end;
	r = fstat(root_fd, &st) < 0 ? -errno : push_job(&w, root, 0, 0);
	if (r < 0)
		goto end;
	c->root_ino = st.st_ino;
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
	malloc_trim(0); /* the threads' arenas */
	return r;
}
