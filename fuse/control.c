/* SPDX-License-Identifier: BSD-3-Clause */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cleanup.h"
#include "control_path.h"
#include "job.h"
#include "log.h"
#include "mount.h"
#include "report.h"
#include "trace.h"
#include "watch.h"

#define GATHER_MS 3000
#define MAX_QUESTION (64 << 10)

struct clair_control {
	struct clair_mount *mount;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int socket, stop;
	pthread_t thread;
};

/* --- answers --------------------------------------------------------------------------- */

static json_t *failure(int r, char *error)
{
	json_t *answer = json_pack("{s:s, s:b}", "error", error ? error : strerror(-r),
				   "mistake", r == -EINVAL);

	free(error);
	return answer;
}

/* A name need not be UTF-8, JSON must be: then its number. */
static void add_name(json_t *list, const struct clair_catalog *c, uint32_t id)
{
	char path[4096];

	clair_catalog_path(c, id, path, sizeof path);
	json_t *name = json_string(path);
	json_array_append_new(list, name ? name : json_integer(id));
}

/* What a fresh walk finds and the mount's catalog has not: the mount does not show it. */
static json_t *added(struct clair_mount *m)
{
	struct clair_catalog *now;
	char path[4096];
	json_t *list = json_array();

	if (clair_catalog_walk(clair_source_root(m->source), 0, NULL, NULL, &now) < 0)
		return list;
	clair_count(&m->stats.pfs_walks, 1);
	for (uint32_t id = 1; id < clair_catalog_count(now); id++)
		if (clair_catalog_path(now, id, path, sizeof path) < sizeof path &&
		    clair_catalog_find(m->catalog, path) == CLAIR_NO_ID)
			add_name(list, now, id);
	clair_catalog_free(now);
	return list;
}

/* Every file's stat against the catalog: what differs is passed through from now on. */
static json_t *check_source(struct clair_mount *m)
{
	json_t *changed = json_array(), *removed = json_array();

	for (uint32_t id = 0; id < clair_catalog_count(m->catalog); id++) {
		if (clair_catalog_entry(m->catalog, id)->kind != CLAIR_FILE)
			continue;
		int r = clair_source_check(m->source, id);
		/* It may have been another one in between. */
		if (r < 0 || clair_stage_is_changed(m->stage, id))
			clair_stage_changed(m->stage, id);
		if (r < 0)
			add_name(r == -ENOENT ? removed : changed, m->catalog, id);
	}
	json_t *report = clair_report_json(m);
	if (!report) {
		json_decref(changed);
		json_decref(removed);
		return failure(-ENOMEM, NULL);
	}
	json_object_set_new(report, "changed", changed);
	json_object_set_new(report, "removed", removed);
	json_object_set_new(report, "added", added(m));
	return report;
}

/* This mount's report with all nodes' short ones, and the job's totals. */
static json_t *gather(struct clair_mount *m)
{
	json_t *report = clair_report_json(m), *node;
	json_t *list = clair_job_gather(m->job, GATHER_MS);
	uint64_t bytes = 0, opens = 0, walks = 0;
	size_t i;

	if (!report || !list) {
		json_decref(list);
		return report ? report : failure(-ENOMEM, NULL);
	}
	json_array_foreach(list, i, node)
	{
		const json_t *pfs = json_object_get(node, "pfs");
		bytes += (uint64_t)json_integer_value(json_object_get(
			json_object_get(json_object_get(node, "reads"), "pfs"), "bytes"));
		opens += (uint64_t)json_integer_value(json_object_get(pfs, "opens"));
		walks += (uint64_t)json_integer_value(json_object_get(pfs, "walks"));
	}
	json_object_set_new(report, "job",
			    json_pack("{s:I, s:I, s:I, s:o}", "pfs_bytes", (json_int_t)bytes,
				      "pfs_opens", (json_int_t)opens, "pfs_walks",
				      (json_int_t)walks, "nodes", list));
	return report;
}

static json_t *set_word(struct clair_mount *m, const json_t *question)
{
	const char *path = json_string_value(json_object_get(question, "path"));
	const char *word = json_string_value(json_object_get(question, "word"));
	const char *value = json_string_value(json_object_get(question, "value"));
	char *error = NULL;

	if (!path || !word || !value)
		return failure(-EPROTO, NULL);
	uint32_t folder = clair_catalog_find(m->catalog, path);
	if (folder == CLAIR_NO_ID ||
	    clair_catalog_entry(m->catalog, folder)->kind != CLAIR_FOLDER) {
		clair_bad(&error, "%s: is no folder of the mount", path);
		return failure(-EINVAL, error);
	}
	int r = clair_mount_set(m, folder, word, value, &error);
	return r < 0 ? failure(r, error) : json_object();
}

static json_t *answer(struct clair_mount *m, const json_t *question)
{
	const char *what = json_string_value(json_object_get(question, "do"));
	json_t *report;

	if (!what)
		return failure(-EPROTO, NULL);
	if (!strcmp(what, "status")) {
		clair_watch_settle(m->watch, 500);
		report = clair_report_json(m);
		return report ? report : failure(-ENOMEM, NULL);
	}
	if (!strcmp(what, "job"))
		return gather(m);
	if (!strcmp(what, "done"))
		return json_pack("{s:b}", "all", clair_job_done(m->job));
	if (!strcmp(what, "check"))
		return check_source(m);
	if (!strcmp(what, "full"))
		return json_pack("{s:b}", "full", clair_stage_wait_full(m->stage, 200) == 0);
	if (!strcmp(what, "set"))
		return set_word(m, question);
	if (!strcmp(what, "pause")) {
		atomic_store(&m->paused, true);
		return json_object();
	}
	return failure(-EPROTO, NULL);
}

/* --- connections ------------------------------------------------------------------------- */

static bool may_ask(const struct clair_mount *m, int fd)
{
	struct ucred who;
	socklen_t n = sizeof who;

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) &&
	       (who.uid == 0 || who.uid == m->uid);
}

static void converse(struct clair_mount *m, int fd)
{
	struct timeval limit = { .tv_sec = 2 };
	autofree char *text = malloc(MAX_QUESTION);
	size_t have = 0;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	while (text && have < MAX_QUESTION && !(have && text[have - 1] == '\n')) {
		ssize_t n = recv(fd, text + have, MAX_QUESTION - have, 0);
		if (n <= 0)
			return;
		have += (size_t)n;
	}
	json_t *question = text ? json_loadb(text, have, 0, NULL) : NULL;
	const char *what = json_string_value(json_object_get(question, "do"));
	if (what && !strcmp(what, "trace")) {
		/* The connection stays: opens are written to it as they come. */
		int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (copy >= 0)
			clair_trace_start(m, copy);
		json_decref(question);
		return;
	}
	json_t *reply = question ? answer(m, question) : failure(-EPROTO, NULL);
	autofree char *out = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
	for (size_t at = 0, size = out ? strlen(out) : 0; at < size;) {
		ssize_t n = send(fd, out + at, size - at, MSG_NOSIGNAL);
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	json_decref(question);
	json_decref(reply);
}

static void *control_thread(void *arg)
{
	struct clair_control *c = arg;
	struct pollfd p[2] = { { c->socket, POLLIN, 0 }, { c->stop, POLLIN, 0 } };

	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return NULL;
		if (p[1].revents)
			return NULL;
		autoclose int fd = accept4(c->socket, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0 && may_ask(c->mount, fd))
			converse(c->mount, fd);
	}
}

int clair_control_start(struct clair_mount *mount, struct clair_control **out)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct clair_control *c = calloc(1, sizeof *c);

	if (!c)
		return -ENOMEM;
	c->mount = mount;
	c->socket = c->stop = -1;
	int r = clair_control_path(getpid(), c->path, sizeof c->path);
	if (r == 0) {
		memcpy(address.sun_path, c->path, sizeof address.sun_path);
		unlink(c->path); /* of a dead process with our number */
		c->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		c->stop = eventfd(0, EFD_CLOEXEC);
		if (c->socket < 0 || c->stop < 0 ||
		    bind(c->socket, (struct sockaddr *)&address, sizeof address) < 0 ||
		    chmod(c->path, 0600) < 0 || listen(c->socket, 16) < 0)
			r = -errno;
	}
	if (r == 0)
		r = -pthread_create(&c->thread, NULL, control_thread, c);
	if (r < 0) {
		if (c->socket >= 0)
			close(c->socket);
		if (c->stop >= 0)
			close(c->stop);
		free(c);
		return r;
	}
	*out = c;
	return 0;
}

void clair_control_stop(struct clair_control *c)
{
	uint64_t one = 1;

	if (!c)
		return;
	unlink(c->path);
	if (write(c->stop, &one, sizeof one) < 0)
		log_warning("the control thread cannot be told to stop: %m");
	pthread_join(c->thread, NULL);
	close(c->socket);
	close(c->stop);
	free(c);
}
