/* SPDX-License-Identifier: BSD-3-Clause */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cleanup.h"
#include "finder.h"
#include "keeper.h"
#include "log.h"
#include "mount.h"
#include "peer_link.h"
#include "report.h"

/* MPI needs this long to come up on many nodes at once; and nodes to list, load and open what
 * they need before they tell. */
#define HELLO_MS 120000
#define AGREE_MS 120000
#define LINK_BUFFER (4 << 20)

struct clair_job {
	struct clair_mount *mount;
	struct clair_peer_link *link;
	struct clair_peers *peers;
	uint32_t node, nodes;
	bool serving; /* the stage knows the others */
	pthread_mutex_t lock; /* all that follows; held while finder or report are used */
	bool deaf;
	struct told *told; /* of the thread that takes what another node found */
};

/* --- launching ------------------------------------------------------------------------- */

static bool more_than_one(const char *name)
{
	const char *value = getenv(name);

	return value && atoi(value) > 1;
}

bool clair_job_launched(void)
{
	/* In a Slurm batch script the variables of the job are there, but those of a step
	 * with several tasks only in its tasks. */
	return more_than_one("OMPI_COMM_WORLD_SIZE") || more_than_one("PMI_SIZE") ||
	       more_than_one("SLURM_STEP_NUM_TASKS");
}

/* NAME beside this program. */
static bool beside(const char *name, char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	if (n <= 0)
		return false;
	path[n] = '\0';
	char *slash = strrchr(path, '/');
	if (!slash)
		return false;
	size_t room = size - (size_t)(slash + 1 - path);
	return snprintf(slash + 1, room, "%s", name) < (int)room;
}

static bool starts_with(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

void clair_job_clean_environment(void)
{
	char path[PATH_MAX];
	extern char **environ;

	for (char **e = environ; *e;) {
		autofree char *name = strndup(*e, strcspn(*e, "="));
		bool mpi = name && (starts_with(name, "PMIX_") || !strcmp(name, "PMI_FD") ||
				    (starts_with(name, "OMPI_") &&
				     !starts_with(name, "OMPI_COMM_WORLD_") &&
				     !starts_with(name, "OMPI_ALLOW_")));
		if (mpi && unsetenv(name) == 0)
			e = environ; /* it may have moved */
		else
			e++;
	}
	if (!beside("libclairfs-mpi-guard.so", path, sizeof path) || access(path, R_OK) < 0)
		return;
	const char *others = getenv("LD_PRELOAD");
	autofree char *all = NULL;
	if (asprintf(&all, "%s%s%s", path, others && *others ? ":" : "", others ? others : "") >= 0)
		setenv("LD_PRELOAD", all, 1);
	else
		all = NULL;
}

static int spawn(int *link, pid_t *peer)
{
	char path[PATH_MAX], number[16];
	int pair[2], size = LINK_BUFFER;

	if (!beside("clairfs-peer", path, sizeof path))
		return -ENOENT;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	for (int i = 0; i < 2; i++)
		setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	*peer = fork();
	if (*peer < 0) {
		int r = -errno;
		close(pair[0]);
		close(pair[1]);
		return r;
	}
	if (*peer == 0) {
		fcntl(pair[1], F_SETFD, 0);
		snprintf(number, sizeof number, "%d", pair[1]);
		execl(path, "clairfs-peer", number, (char *)NULL);
		fprintf(stderr,
			"clairfs: no peers: %s: %s (was this built with -Dmpi=enabled?)\n", path,
			strerror(errno));
		_exit(127);
	}
	close(pair[1]);
	*link = pair[0];
	return 0;
}

void clair_job_start_peer(const struct clair_options *options, int *link, pid_t *peer)
{
	*link = -1;
	*peer = 0;
	if (!options->peers || !clair_job_launched())
		return;
	int r = spawn(link, peer);
	if (r < 0) {
		*peer = 0;
		fprintf(stderr, "clairfs: no peers: %s\n", strerror(-r));
	}
}

/* --- beginning -------------------------------------------------------------------------- */

static void end(void *self)
{
	struct clair_job *job = self;

	log_info("the job ends");
	clair_keeper_job_ends(job->mount);
}

static void get(void *self, uint16_t node, uint32_t id, uint32_t piece, uint64_t request)
{
	struct clair_job *job = self;

	clair_stage_get(job->mount->stage, node, id, piece, request);
}

static char *status(void *self)
{
	struct clair_job *job = self;

	autolock(&job->lock);
	if (job->deaf)
		return NULL;
	json_t *report = clair_report_short(job->mount);
	char *text = report ? json_dumps(report, JSON_COMPACT) : NULL;
	json_decref(report);
	return text;
}

/* What another node found, while it is taken here. */
struct told {
	struct clair_job *job;
	pthread_t thread;
	_Atomic bool done;
	uint32_t folder;
	char *text;
};

/* Making an order the stream may take a second, which the thread that brings frames has not. */
static void *take_found(void *arg)
{
	struct told *t = arg;
	struct clair_mount *m = t->job->mount;
	struct clair_options words = { 0 };
	char ranks[64];
	char *error = NULL;

	if (t->folder < clair_catalog_count(m->catalog) &&
	    clair_options_add(&words, t->text, &error) == 0) {
		const char *world = clair_words_get(&words.order, "world");
		if (world && clair_ranks_share(strtoul(world, NULL, 10), t->job->nodes,
					       t->job->node, ranks, sizeof ranks))
			clair_words_set(&words.order, "ranks", ranks);
		clair_finder_told(m->finder, t->folder, &words.order);
	} else {
		log_warning("another node found an order that makes no sense here: %s",
			    error ? error : t->text);
	}
	free(error);
	clair_options_finish(&words);
	atomic_store(&t->done, true);
	return NULL;
}

static void free_told(struct told *t)
{
	if (!t)
		return;
	pthread_join(t->thread, NULL);
	free(t->text);
	free(t);
}

static void found(void *self, uint32_t folder, const char *text)
{
	struct clair_job *job = self;

	autolock(&job->lock);
	if (job->deaf || (job->told && !atomic_load(&job->told->done)))
		return; /* one at a time: all nodes tell the same */
	free_told(take_ptr(job->told));
	struct told *t = calloc(1, sizeof *t);
	if (!t)
		return;
	*t = (struct told){ .job = job, .folder = folder, .text = strdup(text) };
	if (t->text && pthread_create(&t->thread, NULL, take_found, t) == 0) {
		job->told = t;
		return;
	}
	free(t->text);
	free(t);
}

void clair_job_stop_listening(struct clair_job *job)
{
	if (!job)
		return;
	pthread_mutex_lock(&job->lock);
	job->deaf = true;
	struct told *t = take_ptr(job->told);
	pthread_mutex_unlock(&job->lock);
	free_told(t);
}

void clair_job_found(struct clair_job *job, uint32_t folder, const struct clair_words *words)
{
	char text[2048] = "";
	size_t at = 0;

	if (!job || !job->serving)
		return;
	for (size_t i = 0; i < words->count; i++) {
		const struct clair_word *w = &words->items[i];
		if (!strcmp(w->key, "ranks") || strchr(w->value, ','))
			continue;
		int n = snprintf(text + at, sizeof text - at, "%s%s=%s", at ? "," : "", w->key,
				 w->value);
		if (n < 0 || (size_t)n >= sizeof text - at)
			return;
		at += (size_t)n;
	}
	clair_peers_tell_found(job->peers, folder, text);
}

int clair_job_begin(struct clair_mount *mount, int link, struct clair_job **out)
{
	struct clair_job *job = calloc(1, sizeof *job);

	if (!job) {
		close(link);
		return -ENOMEM;
	}
	job->mount = mount;
	pthread_mutex_init(&job->lock, NULL);
	int r = clair_peer_link_new(link, &job->link);
	if (r == 0) {
		struct clair_transport t = clair_peer_link_transport(job->link);
		r = clair_peers_new(&t, &mount->stats, &job->peers);
	}
	if (r == 0) {
		struct clair_peers_server server = { .self = job, .end = end };
		clair_peers_set_server(job->peers, &server);
		r = clair_peer_link_start(job->link, job->peers);
	}
	if (r == 0)
		r = clair_peers_hello(job->peers, HELLO_MS, &job->node, &job->nodes);
	if (r == 0 && job->nodes > 1) {
		log_info("node %u of %u", job->node, job->nodes);
		*out = job;
		return 0;
	}
	if (r == 0)
		log_warning("the launcher gave one place only: going on without peers");
	else
		log_warning("no peers: %s; going on without",
			    r == -EPIPE ? "the peer process ended (is Open MPI installed here?)" :
			    r == -ETIMEDOUT ? "MPI did not come up" :
					      strerror(-r));
	clair_job_free(job);
	*out = NULL;
	return 0;
}

bool clair_job_catalog(struct clair_job *job, struct clair_catalog **catalog)
{
	uint64_t size;
	int owned;

	if (!job || job->node == 0)
		return false;
	int r = clair_peers_wait_bulk(job->peers, &owned, &size);
	if (r < 0) {
		log_warning("no catalog from node 0: listing the source here");
		return false;
	}
	autoclose int fd = owned;
	void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return false;
	r = clair_catalog_unpack(bytes, size, catalog);
	munmap(bytes, size);
	if (r == 0)
		r = clair_catalog_set_root_path(*catalog, job->mount->source_path);
	if (r < 0)
		log_warning("the catalog of node 0 cannot be used: %s; listing the source here",
			    strerror(-r));
	return r == 0;
}

void clair_job_send_catalog(struct clair_job *job)
{
	struct stat st;

	if (!job || job->node != 0)
		return;
	autoclose int fd = memfd_create("clairfs-catalog", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : clair_catalog_write(job->mount->catalog, fd);
	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r == 0)
		r = clair_peers_send_bulk(job->peers, fd, (uint64_t)st.st_size);
	if (r < 0)
		log_warning("the catalog cannot be sent to the other nodes: %s", strerror(-r));
}

/* --- agreeing ---------------------------------------------------------------------------- */

/* TEXT grows by BEFORE and `KEY=VALUE`. */
static void add_word(char *text, size_t size, const char *before, const char *key,
		     const char *value)
{
	size_t at = strlen(text);

	snprintf(text + at, size - at, "%s%s=%s", before, key, value);
}

static void order_text(const struct clair_options *o, char *text, size_t size)
{
	*text = '\0';
	for (size_t i = 0; i < o->order.count; i++)
		if (strcmp(o->order.items[i].key, "ranks"))
			add_word(text, size, *text ? "," : "", o->order.items[i].key,
				 o->order.items[i].value);
	for (size_t s = 0; s < o->stream_count; s++) {
		add_word(text, size, " ", "stream", o->streams[s].path);
		for (size_t i = 0; i < o->streams[s].words.count; i++)
			if (strcmp(o->streams[s].words.items[i].key, "ranks"))
				add_word(text, size, ";", o->streams[s].words.items[i].key,
					 o->streams[s].words.items[i].value);
	}
}

/* The ranks that this node serves: those of the stream with the largest world. */
static void own_ranks(struct clair_stream *const *streams, size_t count,
		      struct clair_peer_info *info)
{
	uint32_t world = 0;

	for (size_t i = 0; i < count; i++) {
		size_t n;
		const uint32_t *ranks = clair_stream_ranks(streams[i], &n);

		if (clair_stream_world(streams[i]) <= world)
			continue;
		world = clair_stream_world(streams[i]);
		info->rank_count = n < CLAIR_PEER_RANKS ? (uint32_t)n : CLAIR_PEER_RANKS;
		memcpy(info->ranks, ranks, info->rank_count * sizeof *ranks);
	}
}

/* Bytes of samples for which directory D has room, in its file system too: others rely on it. */
static uint64_t room_of(struct clair_disk *d, uint64_t floor)
{
	struct clair_disk_usage usage;
	struct statvfs st;

	clair_disk_usage(d, &usage);
	if (statvfs(clair_disk_path(d), &st) < 0)
		return usage.capacity;
	uint64_t left = (uint64_t)st.f_bavail * st.f_frsize;
	uint64_t most = usage.bytes + (left > floor ? left - floor : 0);
	return usage.capacity < most ? usage.capacity : most;
}

static void tell_of(struct clair_job *job, struct clair_stream *const *streams, size_t count,
		    struct clair_peer_info *info)
{
	const struct clair_mount *m = job->mount;

	info->catalog = clair_catalog_hash(m->catalog);
	info->ram = m->options->ram;
	for (size_t i = 0; i < m->disk_count; i++)
		info->cache += room_of(m->disks[i], m->options->free_bytes);
	gethostname(info->host, sizeof info->host - 1);
	order_text(m->options, info->order, sizeof info->order);
	own_ranks(streams, count, info);
}

/* The node of each rank of a world, or NULL: no memory, or some rank is nobody's. */
static uint16_t *nodes_of_ranks(const struct clair_job *job, uint32_t world)
{
	uint16_t *nodes = malloc(sizeof *nodes * (world ? world : 1));

	if (!nodes)
		return NULL;
	for (uint32_t r = 0; r < world; r++)
		nodes[r] = CLAIR_NO_NODE;
	for (uint32_t i = job->nodes; i-- > 0;) {
		const struct clair_peer_info *info = clair_peers_info(job->peers, i);
		for (uint32_t k = 0; info && k < info->rank_count; k++)
			if (info->ranks[k] < world)
				nodes[info->ranks[k]] = (uint16_t)i;
	}
	return nodes;
}

static int place(struct clair_job *job, struct clair_stream **streams, size_t count,
		 struct clair_placement **out)
{
	autofree struct clair_placement_node *nodes = calloc(job->nodes, sizeof *nodes);
	uint16_t **of_rank = calloc(count + 1, sizeof *of_rank);
	int r = nodes && of_rank ? 0 : -ENOMEM;
	uint64_t epochs = 0;

	for (uint32_t i = 0; r == 0 && i < job->nodes; i++) {
		const struct clair_peer_info *info = clair_peers_info(job->peers, i);
		if (info)
			nodes[i] = (struct clair_placement_node){ info->ram, info->cache };
	}
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (!clair_stream_known(streams[i]))
			continue;
		of_rank[i] = nodes_of_ranks(job, clair_stream_world(streams[i]));
		uint64_t end_epoch = clair_stream_end_epoch(streams[i]);
		uint64_t n = end_epoch == UINT64_MAX ?
				     8 :
				     end_epoch - clair_stream_first_epoch(streams[i]);
		if (n > epochs)
			epochs = n;
	}
	if (r == 0) {
		struct clair_placement_input input = {
			.catalog = job->mount->catalog,
			.nodes = nodes,
			.node_count = job->nodes,
			.self = job->node,
			.streams = streams,
			.stream_count = count,
			.node_of_rank = (const uint16_t *const *)of_rank,
			.epochs = epochs > 64 ? 64 : (uint32_t)epochs,
		};
		const char *name = job->mount->options->placement;
		r = clair_policy_find(name ? name : "clairfs")->place(&input, out);
	}
	for (size_t i = 0; of_rank && i < count; i++)
		free(of_rank[i]);
	free(of_rank);
	return r;
}

void clair_job_agree(struct clair_job *job)
{
	autofree struct clair_peer_info *info = calloc(1, sizeof *info);
	autofree struct clair_stream **streams = NULL;
	struct clair_placement *placement = NULL;
	size_t count = 0;

	if (!job)
		return;
	int r = info ? clair_stage_streams(job->mount->stage, &streams, &count) : -ENOMEM;
	if (r == 0) {
		tell_of(job, streams, count, info);
		r = clair_peers_agree(job->peers, info, AGREE_MS);
	}
	if (r == 0)
		r = place(job, streams, count, &placement);
	if (r == 0)
		r = clair_stage_set_peers(job->mount->stage, job->peers, placement);
	if (r < 0) {
		if (r != -EPIPE)
			log_warning("no peers: %s; going on without", strerror(-r));
		clair_peers_leave(job->peers); /* who asks is told so */
		return;
	}
	struct clair_peers_server server = {
		.self = job, .get = get, .end = end, .found = found, .status = status
	};
	clair_peers_set_server(job->peers, &server);
	job->serving = true;
	log_info("placement %016llx over %u nodes",
		 (unsigned long long)clair_placement_hash(placement), job->nodes);
}

/* --- running ------------------------------------------------------------------------------ */

void clair_job_bye(struct clair_job *job)
{
	if (job)
		clair_peers_bye(job->peers);
}

void clair_job_free(struct clair_job *job)
{
	if (!job)
		return;
	clair_peer_link_free(job->link);
	clair_peers_free(job->peers);
	clair_job_stop_listening(job);
	pthread_mutex_destroy(&job->lock);
	free(job);
}

bool clair_job_done(struct clair_job *job)
{
	return !job || !job->serving || clair_peers_done(job->peers);
}

int clair_job_json(struct clair_job *job, json_t *report)
{
	return job ? clair_peers_json(job->peers, report) : 0;
}

json_t *clair_job_gather(struct clair_job *job, int timeout_ms)
{
	if (!job || !job->serving)
		return NULL;
	json_t *list = clair_peers_gather(job->peers, timeout_ms);
	json_t *own = clair_report_short(job->mount);
	if (own)
		json_array_set_new(list, job->node, own);
	return list;
}

uint64_t clair_job_capacity(struct clair_job *job, uint64_t fallback)
{
	return job && job->serving ? clair_peers_capacity(job->peers) : fallback;
}
