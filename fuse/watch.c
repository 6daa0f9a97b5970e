/* SPDX-License-Identifier: BSD-3-Clause */
#include "watch.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "finder.h"
#include "log.h"
#include "trace.h"

/* While readers are busy the queue is drained so often: in batches, since a wake-up an open
 * would cost more than the open. */
#define PAUSE_NS (1500 * 1000)
#define BUFFER (256 << 10)

struct clair_watch {
	struct clair_mount *mount;
	int inotify, stop;
	pthread_t thread;
	uint32_t *folder_of; /* by watch descriptor: catalog id */
	size_t room;
	pthread_mutex_t lock;
	pthread_cond_t set;
	bool ready;
	_Atomic bool draining; /* events were taken and are not counted yet */
};

static bool has_files(const struct clair_catalog *c, uint32_t id)
{
	const struct clair_entry *e = clair_catalog_entry(c, id);

	if (e->kind != CLAIR_FOLDER)
		return false;
	for (uint32_t i = 0; i < e->count; i++)
		if (clair_catalog_entry(c, e->first + i)->kind == CLAIR_FILE)
			return true;
	return false;
}

static int remember(struct clair_watch *w, int wd, uint32_t folder)
{
	if ((size_t)wd >= w->room) {
		size_t room = (size_t)wd * 2 + 64;
		uint32_t *longer = realloc(w->folder_of, room * sizeof *longer);
		if (!longer)
			return -ENOMEM;
		memset(longer + w->room, 0xff, (room - w->room) * sizeof *longer);
		w->folder_of = longer;
		w->room = room;
	}
	w->folder_of[wd] = folder;
	return 0;
}

static int watch_folder(struct clair_watch *w, uint32_t folder)
{
	struct clair_mount *m = w->mount;
	char path[PATH_MAX], relative[PATH_MAX];
	int root = atomic_load(&m->root_fd), n;

	if (clair_catalog_path(m->catalog, folder, relative, sizeof relative) >=
	    sizeof relative)
		return -ENAMETOOLONG;
	n = root >= 0 ? snprintf(path, sizeof path, "/proc/self/fd/%d/%s", root, relative) :
			snprintf(path, sizeof path, "%s/%s", m->mountpoint, relative);
	if (n >= (int)sizeof path)
		return -ENAMETOOLONG;
	int wd = inotify_add_watch(w->inotify, path, IN_OPEN | IN_ONLYDIR);
	return wd < 0 ? -errno : remember(w, wd, folder);
}

static void go_without(struct clair_mount *m)
{
	atomic_store(&m->unwatched, true);
	atomic_store(&m->answer_opens, true);
}

static void watch_all(struct clair_watch *w)
{
	const struct clair_catalog *c = w->mount->catalog;
	int failed = 0;
	unsigned left_out = 0;

	for (uint32_t id = 0; id < clair_catalog_count(c); id++) {
		if (!has_files(c, id))
			continue;
		int r = failed == -ENOSPC ? failed : watch_folder(w, id);
		/* A folder that the user may not enter is not read either. */
		if (r < 0 && r != -EACCES) {
			failed = r;
			left_out++;
		}
	}
	if (left_out) {
		log_warning("%u folders cannot be watched (%s%s): opens are answered by the "
			    "daemon instead, which is slower",
			    left_out, strerror(-failed),
			    failed == -ENOSPC ? "; raise fs.inotify.max_user_watches" : "");
		go_without(w->mount);
	} else {
		atomic_store(&w->mount->watched, true);
	}
}

static void see(struct clair_watch *w, const struct inotify_event *event, int64_t now)
{
	struct clair_mount *m = w->mount;

	if (event->mask & IN_Q_OVERFLOW) {
		clair_stage_overflow(m->stage);
		return;
	}
	/* Where opens are answered they have been counted there. */
	if (event->mask & IN_ISDIR || !(event->mask & IN_OPEN) || !event->len ||
	    event->wd < 0 || (size_t)event->wd >= w->room ||
	    atomic_load_explicit(&m->answer_opens, memory_order_relaxed))
		return;
	uint32_t folder = w->folder_of[event->wd];
	if (folder == CLAIR_NO_ID)
		return;
	uint32_t id = clair_catalog_child(m->catalog, folder, event->name,
					  strlen(event->name));
	if (id != CLAIR_NO_ID && clair_catalog_entry(m->catalog, id)->kind == CLAIR_FILE) {
		clair_stage_opened(m->stage, id, now);
		clair_finder_open(m->finder, 0, id);
		clair_trace_open(m, 0, id);
	}
}

static void drain(struct clair_watch *w, char *buffer)
{
	ssize_t n;

	while ((n = read(w->inotify, buffer, BUFFER)) > 0) {
		int64_t now = clair_now_ns();
		for (char *p = buffer; p < buffer + n;) {
			const struct inotify_event *event = (void *)p;
			see(w, event, now);
			p += sizeof *event + event->len;
		}
	}
}

static void *watch_thread(void *arg)
{
	struct clair_watch *w = arg;
	struct pollfd p[2] = { { w->inotify, POLLIN, 0 }, { w->stop, POLLIN, 0 } };
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	autofree char *buffer = malloc(BUFFER);

	watch_all(w);
	pthread_mutex_lock(&w->lock);
	w->ready = true;
	pthread_cond_broadcast(&w->set);
	pthread_mutex_unlock(&w->lock);
	while (buffer && !p[1].revents) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents) {
			atomic_store(&w->draining, true);
			drain(w, buffer);
			atomic_store(&w->draining, false);
			nanosleep(&pause, NULL);
		}
	}
	return NULL;
}

void clair_watch_settle(struct clair_watch *w, int ms)
{
	int64_t end = clair_now_ns() + ms * CLAIR_NS_PER_MS;
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	int waiting;

	while (w && clair_now_ns() < end) {
		if (ioctl(w->inotify, FIONREAD, &waiting) < 0 ||
		    (!waiting && !atomic_load(&w->draining)))
			return;
		nanosleep(&pause, NULL);
	}
}

void clair_watch_wait(struct clair_watch *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	while (!w->ready)
		pthread_cond_wait(&w->set, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

int clair_watch_start(struct clair_mount *mount, struct clair_watch **out)
{
	struct clair_watch *w = calloc(1, sizeof *w);

	*out = NULL;
	if (!w)
		return -ENOMEM;
	w->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (w->inotify < 0) {
		log_warning("no inotify (%m%s): opens are answered by the daemon instead, which "
			    "is slower",
			    errno == EMFILE ? "; raise fs.inotify.max_user_instances" : "");
		go_without(mount);
		free(w);
		return 0;
	}
	w->mount = mount;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->set, NULL);
	w->stop = eventfd(0, EFD_CLOEXEC);
	int r = w->stop < 0 ? -errno : 0;
	if (r == 0)
		r = -pthread_create(&w->thread, NULL, watch_thread, w);
	if (r < 0) {
		close(w->inotify);
		if (w->stop >= 0)
			close(w->stop);
		free(w);
		return r;
	}
	*out = w;
	return 0;
}

void clair_watch_stop(struct clair_watch *w)
{
	uint64_t one = 1;

	if (!w)
		return;
	if (write(w->stop, &one, sizeof one) < 0)
		log_warning("the watch cannot be told to stop: %m");
	pthread_join(w->thread, NULL);
	close(w->inotify);
	close(w->stop);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->set);
	free(w->folder_of);
	free(w);
}
