/* SPDX-License-Identifier: BSD-3-Clause */
/* The mount process: puts the parts together, serves, takes them apart. */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate.h"
#include "catalog_open.h"
#include "cleanup.h"
#include "clock.h"
#include "control.h"
#include "disk.h"
#include "finder.h"
#include "job.h"
#include "keeper.h"
#include "log.h"
#include "mount.h"
#include "watch.h"

/* FUSE threads are many, since each READ that waits for the PFS takes one; idle ones are
 * few. */
#define MAX_THREADS 1024
#define IDLE_THREADS 8
#define OWN_BYTES (64ull << 20) /* that the process takes beside its budgets */
#define DECIDE_MS 2000

struct daemon {
	const struct clair_daemon_config *config;
	struct clair_mount mount;
	struct clair_watch *watch;
	struct clair_control *control;
	struct clair_keeper *keeper;
	char fuse_path[32]; /* "/dev/fd/N" for a descriptor that is mounted already */
	bool mounted, served;
	char *error; /* one line for the user */
};

/* --- telling the parent ----------------------------------------------------------------- */

static void tell(int fd, const char *line)
{
	if (fd < 0) {
		if (strcmp(line, CLAIR_DAEMON_READY))
			fprintf(stderr, "clairfs: %s\n", line);
		return;
	}
	if (write(fd, line, strlen(line)) < 0)
		log_warning("nobody waits for the mount: %m");
	close(fd);
}

static void show_progress(void *arg, uint64_t entries, uint64_t folders)
{
	bool *shown = arg;

	*shown = true;
	fprintf(stderr, "\rclairfs: listing the source: %llu entries, %llu folders to go ",
		(unsigned long long)entries, (unsigned long long)folders);
}

/* --- parts ------------------------------------------------------------------------------- */

static int open_catalog(struct daemon *d)
{
	struct clair_mount *m = &d->mount;
	bool walked = false, shown = false;
	int r = 0;

	if (!clair_job_catalog(m->job, &m->catalog))
		r = clair_catalog_open(m->options, d->config->source_fd, m->source_path,
				   isatty(STDERR_FILENO) ? show_progress : NULL, &shown,
				   &m->catalog, &walked);
	if (shown)
		fputs("\r\033[K", stderr);
	if (r < 0) {
		clair_bad(&d->error, "%s: cannot be listed: %s", m->source_path,
			  strerror(-r));
		return r;
	}
	if (walked)
		clair_count(&m->stats.pfs_walks, 1);
	clair_job_send_catalog(m->job);
	m->lookups = calloc(clair_catalog_count(m->catalog), sizeof *m->lookups);
	return m->lookups ? 0 : -ENOMEM;
}

/* A walk may take minutes. Until its end nothing is mounted here, and signals end the process
 * as usual; so does the end of whoever waits for the mount. Then the keeper takes them. */
static int open_catalog_or_end(struct daemon *d)
{
	struct pollfd waiting = { d->config->ready_fd, 0, 0 };
	sigset_t signals;

	if (d->config->ready_fd >= 0)
		prctl(PR_SET_PDEATHSIG, SIGTERM);
	int r = open_catalog(d);
	prctl(PR_SET_PDEATHSIG, 0);
	clair_keeper_signals(&signals);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (r == 0 && d->config->ready_fd >= 0 && poll(&waiting, 1, 0) > 0 &&
	    waiting.revents & POLLERR)
		r = -ECANCELED;
	return r;
}

static int open_disks(struct daemon *d)
{
	struct clair_mount *m = &d->mount;
	const struct clair_options *o = m->options;

	m->disks = calloc(o->cache_count + 1, sizeof(struct clair_disk *));
	if (!m->disks)
		return -ENOMEM;
	for (size_t i = 0; i < o->cache_count; i++) {
		struct clair_disk_config config = { .path = o->caches[i].path,
						    .bytes = o->caches[i].bytes,
						    .free_bytes = o->free_bytes };
		int r = clair_disk_open(&config, m->catalog, &m->disks[i], &d->error);
		if (r < 0)
			return r;
		m->disk_count++;
	}
	return 0;
}

/* What `clairfs calibrate` measured on this host, if it was asked to. */
static void begin_model(struct clair_mount *m)
{
	struct clair_model model = { 0 };
	char file[4096];

	if (clair_calibrate_path(m->source_path, false, file, sizeof file) == 0 &&
	    clair_calibrate_load(file, &model) == 0)
		clair_stage_set_model(m->stage, &model);
}

static int make_stage(struct daemon *d)
{
	struct clair_mount *m = &d->mount;
	struct clair_stage_config config = {
		.catalog = m->catalog,
		.source = m->source,
		.kernel = &clair_mount_kernel,
		.disks = m->disks,
		.disk_count = m->disk_count,
		.stats = &m->stats,
		.ram = m->options->ram,
		.staging = m->options->staging,
		.threads = m->options->threads,
		.keep = m->options->keep,
		.saved_catalog = !atomic_load(&m->stats.pfs_walks),
	};
	struct clair_kernel *kernel = malloc(sizeof *kernel);

	if (!kernel)
		return -ENOMEM;
	/* Lives as long as the process: the stage's threads may outlive the stage. */
	*kernel = clair_mount_kernel;
	kernel->self = m;
	config.kernel = kernel;
	int r = clair_stage_new(&config, &m->stage);
	if (r < 0)
		return r;
	begin_model(m);
	return clair_mount_streams(m, &d->error);
}

static int make_session(struct daemon *d)
{
	struct clair_mount *m = &d->mount;
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	autofree char *options = NULL;
	const char *extra = m->options->fuse;
	int r = 0;

	/* A comma in the source's name would end the option. */
	autofree char *name = strdup(m->source_path);
	for (char *p = name; p && *p; p++)
		if (*p == ',' || *p == '\\')
			*p = '_';
	if (!name)
		return -ENOMEM;
	if (asprintf(&options, "fsname=%s,subtype=clairfs,default_permissions%s%s%s", name,
		     m->options->read_only ? ",ro" : "", extra ? "," : "",
		     extra ? extra : "") < 0) {
		options = NULL;
		return -ENOMEM;
	}
	if (fuse_opt_add_arg(&args, "clairfs") || fuse_opt_add_arg(&args, "-o") ||
	    fuse_opt_add_arg(&args, options))
		r = -ENOMEM;
	if (r == 0)
		m->session = fuse_session_new(&args, &clair_fuse_ops, sizeof clair_fuse_ops, m);
	fuse_opt_free_args(&args);
	if (r == 0 && !m->session)
		r = clair_bad(&d->error,
			      "libfuse does not take these mount options: %s", options);
	return r;
}

static int mount_session(struct daemon *d)
{
	struct clair_mount *m = &d->mount;
	const char *where = m->mountpoint;

	if (d->config->fuse_fd >= 0) {
		snprintf(d->fuse_path, sizeof d->fuse_path, "/dev/fd/%d", d->config->fuse_fd);
		where = d->fuse_path;
	}
	if (fuse_session_mount(m->session, where) != 0) {
		clair_bad(&d->error,
			  "cannot mount over %s%s", m->mountpoint,
			  access("/dev/fuse", R_OK | W_OK) ?
				  ": /dev/fuse cannot be opened (is the module loaded, and "
				  "is it readable and writable by you?)" :
			  geteuid() ?
				  ": a user must own and be able to write the mount point; "
				  "`clairfs run` needs neither" :
				  "");
		return -EPERM;
	}
	d->mounted = true;
	if (d->config->root_fd < 0 && geteuid() == 0)
		atomic_store(&m->root_fd, clair_kernel_clone(m->mountpoint));
	return 0;
}

static int prepare(struct daemon *d)
{
	struct clair_mount *m = &d->mount;
	uint64_t random = (uint64_t)clair_now_ns();

	if (getrandom(&random, sizeof random, 0) < 0)
		log_debug("no random numbers: %m");
	snprintf(m->alias, sizeof m->alias, ".clairfs-%016llx", (unsigned long long)random);
	int r = 0;
	if (d->config->link_fd >= 0)
		r = clair_job_begin(m, d->config->link_fd, &m->job);
	if (r == 0)
		r = open_catalog_or_end(d);
	if (r == 0)
		r = clair_source_new(d->config->source_fd, m->catalog, &m->stats,
				     &m->source);
	if (r == 0)
		r = open_disks(d);
	if (r == 0)
		r = make_stage(d);
	if (r == 0)
		clair_job_agree(m->job);
	if (r == 0)
		r = make_session(d);
	if (r == 0)
		r = mount_session(d);
	return r;
}

/* --- running ------------------------------------------------------------------------------ */

/* Whoever reads a pipe to its end must not wait for the daemon; a file may have more. */
static void leave_stderr(void)
{
	struct stat st;
	int null;

	if (fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode))
		return;
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (null < 0)
		return;
	dup2(null, STDERR_FILENO);
	close(null);
}

struct announce {
	struct daemon *daemon;
	int ready_fd;
};

/* The watches need the mount to be served: a thread waits for them, then tells. */
static void *announce_thread(void *arg)
{
	struct announce *a = arg;

	clair_watch_wait(a->daemon->watch);
	clair_stage_wait_decided(a->daemon->mount.stage, DECIDE_MS);
	if (a->daemon->config->leave)
		leave_stderr();
	tell(a->ready_fd, CLAIR_DAEMON_READY);
	free(a);
	return NULL;
}

static int start_parts(struct daemon *d)
{
	struct clair_mount *m = &d->mount;
	struct announce *a = malloc(sizeof *a);
	pthread_t thread;

	if (!a)
		return -ENOMEM;
	*a = (struct announce){ d, d->config->ready_fd };
	int r = clair_keeper_start(m, d->config->lifeline_fd, d->config->fuse_fd < 0,
				   &d->keeper);
	atomic_store(&m->keeper, d->keeper);
	if (r == 0)
		r = clair_finder_start(m, &m->finder);
	if (r == 0)
		r = clair_watch_start(m, &d->watch);
	m->watch = d->watch;
	if (r == 0)
		r = clair_stage_start(m->stage);
	if (r == 0) {
		int c = clair_control_start(m, &d->control);
		if (c < 0)
			log_warning("no control socket: %s; `clairfs status` will not find "
				    "this mount",
				    strerror(-c));
		r = -pthread_create(&thread, NULL, announce_thread, a);
	}
	if (r == 0)
		pthread_detach(thread);
	else
		free(a);
	return r;
}

static int serve(struct daemon *d)
{
	struct fuse_loop_config *loop = fuse_loop_cfg_create();

	if (!loop)
		return -ENOMEM;
	fuse_loop_cfg_set_max_threads(loop, MAX_THREADS);
	fuse_loop_cfg_set_idle_threads(loop, IDLE_THREADS);
	fuse_loop_cfg_set_clone_fd(loop, 0);
	int r = fuse_session_loop_mt(d->mount.session, loop);
	fuse_loop_cfg_destroy(loop);
	return r < 0 ? r : 0;
}

static void take_apart(struct daemon *d)
{
	struct clair_mount *m = &d->mount;

	/* From here on everything ends within a deadline of the keeper's. */
	clair_keeper_ending(d->keeper);
	atomic_store(&m->paused, true);
	clair_control_stop(d->control);
	if (d->served)
		clair_job_bye(m->job);
	clair_watch_stop(d->watch);
	clair_job_stop_listening(m->job);
	clair_finder_stop(m->finder);
	if (m->stage)
		clair_stage_stop(m->stage);
	/* libfuse would unmount what lies below when ours is gone and still in use. */
	if (d->mounted && d->config->fuse_fd < 0 && d->keeper)
		clair_keeper_unmount(d->keeper);
	else if (d->mounted && d->config->fuse_fd < 0)
		fuse_session_unmount(m->session);
	for (size_t i = 0; i < m->disk_count; i++)
		clair_disk_close(m->disks[i]);
	atomic_store(&m->keeper, NULL);
	clair_job_free(m->job);
	clair_keeper_stop(d->keeper);
	if (m->session)
		fuse_session_destroy(m->session);
}

/* Each READ that waits for the source holds a file open there. */
static void raise_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= files.rlim_max)
		return;
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		log_debug("RLIMIT_NOFILE stays: %m");
}

/* Budgets that do not fit into the memory that this process may use would end it. */
static void fit_memory(struct clair_options *o)
{
	uint64_t limit = clair_memory_limit();
	uint64_t room = limit > 2 * OWN_BYTES ? limit - OWN_BYTES : limit / 2;

	if (o->ram <= room && o->staging <= room - o->ram)
		return;
	if (o->staging > room / 4)
		o->staging = room / 4;
	if (o->ram > room - o->staging)
		o->ram = room - o->staging;
	log_warning("%llu MB of memory may be used here: ram is %llu MB, staging %llu MB",
		    (unsigned long long)(limit >> 20), (unsigned long long)(o->ram >> 20),
		    (unsigned long long)(o->staging >> 20));
}

static void *wait_for_end(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

/* The first pthread_cancel (libfuse ends its threads by it) loads a library, and aborts when no
 * descriptor is left then: it is done at once. */
static void load_unwinder(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, wait_for_end, NULL))
		return;
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

int clair_daemon_run(const struct clair_daemon_config *config)
{
	struct clair_options options = *config->options; /* its memory stays the caller's */
	struct daemon d = { .config = config };
	struct clair_mount *m = &d.mount;

	fit_memory(&options);
	m->options = &options;
	m->source_path = strdup(config->source_path);
	m->mountpoint = strdup(config->mountpoint);
	m->root_fd = config->root_fd;
	m->uid = geteuid();
	m->gid = getegid();
	m->own_ids = config->fuse_fd >= 0 && m->uid != 0;
	signal(SIGPIPE, SIG_IGN);
	/* Batch systems send these to all of a job before its time is over. */
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN); /* until the keeper takes it */
	raise_files();
	load_unwinder();
	int r = prepare(&d);
	if (r == 0)
		r = start_parts(&d);
	if (r < 0) {
		autofree char *line = NULL;
		if (!d.error && asprintf(&line, "%s: %s", m->source_path, strerror(-r)) < 0)
			line = NULL;
		tell(config->ready_fd, d.error ? d.error : line ? line : "out of memory");
		take_apart(&d);
		return r == -EINVAL ? 2 : 1;
	}
	d.served = true;
	r = serve(&d);
	take_apart(&d);
	return r < 0 ? 1 : 0;
}
