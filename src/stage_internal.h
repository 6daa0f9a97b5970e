/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_STAGE_INTERNAL_H
#define CLAIR_STAGE_INTERNAL_H

/* Shared by the stage's own files only. ARCHITECTURE.md, "Stage", has the picture. */

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "arena.h"
#include "buffer.h"
#include "cleanup.h"
#include "clock.h"
#include "model.h"
#include "peers.h"
#include "stage.h"
#include "tracker.h"

#define PIECE CLAIR_DISK_PIECE       /* bytes: larger files move in pieces of this */
#define MAX_WORKERS 64u
#define MAX_SERVERS 16u              /* threads that load for other nodes */
#define SHARED_BYTES (1ull << 30)    /* of buffers that the peer process sees; sparse */
#define INFLIGHT_BYTES (32ull << 20) /* of buffers that are being filled */
#define SENDING_BYTES (128ull << 20) /* of buffers on their way to other nodes */
#define HELD_BYTES (12ull << 20)     /* of loaded bytes kept for READs still to come */
#define HELD_NS (2 * CLAIR_NS_PER_S)
#define POOL_BYTES (12ull << 20)
#define PATIENCE_NS (5 * CLAIR_NS_PER_S) /* that a READ waits for another's load */
#define FLIGHT_BUCKETS 512u
#define DROP_BATCH 32u
#define NEEDS_MAX UINT16_MAX

enum sample_state {
	S_ABSENT,
	S_FETCHING, /* workers load and push it */
	S_STAGED,   /* in the page cache, counted in staging */
	S_KEPT,     /* in the page cache for the run, counted in ram */
	S_DROPPING, /* a worker gives its pages back; counted in staging */
};

enum {
	F_ARENA = 1,   /* a copy is in the arena */
	F_CHANGED = 2, /* differs from the catalog: read from the source from now on */
	F_QUEUED = 4,  /* in the drop queue */
	F_USED = 8,    /* opened since it came to be KEPT */
	F_HASHED = 16, /* stage->hashes has its hash */
	F_LOADED = 32, /* a READ brought it; it is not counted in a budget yet */
	F_SEEN = 64,   /* its attributes at the source were seen in this mount */
};

/* What the accounting knows of the last open of a sample. */
enum {
	A_IDLE,
	A_OPENED,     /* counted as staged */
	A_SETTLED,    /* counted as late, missed or unpredicted */
	A_EARLY_LATE, /* a READ came before the open's event */
	A_EARLY_MISSED,
};

struct sample {
	uint8_t state, flags;
	uint8_t stream;      /* number + 1 of the deepest stream that has it, 0: none */
	uint8_t account : 3; /* A_* */
	uint8_t slot : 5;    /* epoch record (its number mod 32) of the last open */
	uint16_t needs;      /* window entries that want it; NEEDS_MAX stays */
	uint8_t disk;        /* number + 1 of the directory that has it */
	uint8_t zero;
};

struct budget {
	uint64_t bytes, limit; /* bytes of samples */
	uint64_t real;         /* the same with page rounding and inodes */
	uint64_t samples;
};

/* One load of one sample, or of one piece of a large file. */
struct flight {
	struct flight *next;          /* bucket */
	struct flight *older, *newer; /* in the list of held ones */
	struct flight *next_spill;
	uint32_t id, piece;
	unsigned holders;
	bool listed; /* findable in the table */
	bool held;   /* in the list of held ones, which is a holder */
	bool demand; /* a READ began it */
	bool serving; /* another node asked for it: not from another node again */
	bool aside;   /* a node takes it, maybe slowly: not counted in inflight_bytes */
	bool loaded; /* or failed: error */
	int error;
	size_t size; /* bytes that it has when loaded */
	const unsigned char *data;
	struct clair_buffer *buffer; /* owns data; NULL: data is in the arena */
	uint64_t handed;             /* bytes given to READs so far */
	int64_t begun, stalled_to;   /* monotonic ns */
	pthread_cond_t done;
	/* What is to become of it. */
	bool keep;         /* to KEPT, else STAGED */
	bool spill;        /* offer it to the directories */
	uint32_t arena_at; /* room for a copy, or CLAIR_ARENA_NONE */
	uint8_t mend;      /* number + 1 of the directory where this piece is damaged */
};

/* The hashes of a large file's pieces; live as long as the stage. */
struct piece_hashes {
	struct piece_hashes *next;
	uint64_t hash[];
};

/* A file of several pieces that is being staged. lock, but what is set before ready */
struct large {
	struct large *next;
	uint32_t id, pieces, begun, finished;
	uint32_t first; /* no piece before it is unclaimed */
	bool failed, keep;
	bool spill;            /* a directory is to have it */
	bool beginning, ready; /* a worker opens it; has opened it: all pieces may go */
	uint32_t arena_at;
	/* Set before ready. */
	struct opened *file;              /* or NULL */
	struct clair_disk_writer *writer; /* or NULL */
	uint8_t disk;                     /* number + 1 of the writer's directory */
	struct piece_hashes *hashes;      /* to be filled, or NULL; a piece's by who loads it */
	atomic_bool copy_failed;
	struct flight *loaded; /* by READs, through next_spill; a holder */
	uint64_t claimed[];    /* a bit a piece */
};

/* A file of several pieces that is kept here for the others, as they ask for it. */
struct filling {
	struct filling *next;
	uint32_t id, arena_at, pieces, done;
	bool loaded[]; /* by piece; a true one stays, and so do its bytes */
};

struct lane {
	struct clair_epoch *now, *then; /* the epoch that is read; the one after */
	uint32_t head;                  /* next entry of now, or of then when ahead */
	uint32_t tail;                  /* entries of now before it are done with */
	uint64_t *done;                 /* a bit an entry of now: opened; may be NULL */
	bool ahead;                     /* head is in then */
	bool wants_then;                /* a worker should make it */
	bool making;
	bool ended;                     /* nothing comes after now */
	bool outrun;                    /* the reader was at the head before us */
	uint64_t pass, next_epoch;
};

struct stream {
	/* order lock */
	struct clair_stream *stream;
	struct clair_tracker *tracker;
	/* both locks to write, either to read */
	uint32_t folder;
	bool known, trusted;
	struct lane *lanes; /* now and then too; the rest of a lane: lock */
	size_t lane_count;
	/* lock */
	uint64_t bytes; /* of samples that it owns */
	struct clair_epoch_stats *epochs;
	uint64_t *passes; /* beside epochs */
	size_t epoch_count, epoch_room;
};

struct drop_entry {
	uint32_t id;
	int64_t since; /* monotonic ns */
};

/* Where fetches wait for a device; other nodes are the peers' to measure. */
enum stage_way { WAY_CACHE, WAY_SOURCE, WAYS };

struct way {
	uint64_t waiting; /* bytes of fetches under way */
	uint32_t loads;
	int64_t ended; /* monotonic ns: the last one */
};

struct clair_stage {
	struct clair_stage_config config; /* its disks are a copy of ours */
	const struct clair_catalog *catalog;
	uint32_t count;
	struct clair_pool *pool;

	pthread_mutex_t order; /* streams' orders and trackers; taken before lock */
	pthread_mutex_t turn;  /* one push at a time; nothing is taken under it */
	pthread_mutex_t lock;  /* all that follows */
	pthread_cond_t work;   /* for workers */
	pthread_cond_t quiet;  /* for wait_full and stop */

	enum clair_keep keep; /* AUTO until it is decided */
	bool deciding;
	struct sample *samples;
	uint64_t *hashes;   /* by id, when a tier keeps copies; a large file's: piece_hashes */
	uint32_t *arena_at; /* by id */
	struct clair_arena *arena;
	struct budget ram, staging;
	uint64_t homeless; /* bytes of streams' samples that no tier has */

	struct stream *streams;
	size_t stream_count;

	struct flight *flights[FLIGHT_BUCKETS];
	struct flight *oldest, *newest; /* held */
	uint64_t held_bytes, inflight_bytes;
	struct large *larges;
	struct opened *opened; /* large files of the source */
	struct piece_hashes *piece_hashes;
	struct flight *spills; /* loaded by READs, for the directories; a holder */

	uint32_t *invalids; /* changed; the kernel is to be told */
	size_t invalid_count, invalid_room;

	struct drop_entry *drops; /* ring */
	size_t drop_first, drop_count, drop_room;
	uint64_t drop_bytes; /* as stage_real counts */
	int64_t drop_not_before, drop_pause;
	size_t busy_run; /* samples in use, one after the other, without a drop */
	bool starved; /* a lane waits for staging room */

	pthread_t workers[MAX_WORKERS];
	unsigned worker_count, alive, active, idle, limit;
	bool started, stopping, abandoned;
	bool gone;   /* the mount is */
	bool kicked; /* there may be work that no worker looked at yet */

	/* The other nodes; NULL: alone. Set before the workers start. */
	struct clair_peers *peers;
	struct serve *serves, **serves_last; /* what they wait for */
	struct filling *fillings;
	unsigned serve_count, server_count, servers_idle;
	uint64_t sending_bytes; /* of buffers and of the arena, on their way to them */
	pthread_t servers[MAX_SERVERS];
	pthread_cond_t served;

	struct clair_model model;
	struct way ways[WAYS];
	unsigned probes;

	/* Little's law: the measured source. */
	int64_t window_begin, base_latency, recent_latency;
	bool settled; /* more loads at once bring no more */
	uint64_t window_loads;
	double rate; /* loads a second */
};

/* One thing for a worker to do. */
struct job {
	enum { J_NONE, J_FLIGHT, J_PIECE, J_DROP, J_EPOCH, J_SPILL, J_INVALIDATE } kind;
	struct flight *flight;
	struct large *large;
	size_t stream, lane;
	uint32_t id;
	struct drop_entry drops[DROP_BATCH];
	size_t drop_count;
};

static inline uint64_t sample_size(const struct clair_stage *st, uint32_t id)
{
	return clair_catalog_entry(st->catalog, id)->size;
}

/* The hash that PIECE of ID must have: false when it is not known. lock */
static inline bool stage_known_hash(const struct clair_stage *st, uint32_t id, uint32_t piece,
				    uint64_t *hash)
{
	if (!(st->samples[id].flags & F_HASHED))
		return false;
	*hash = st->hashes[id];
	if (sample_size(st, id) > PIECE)
		*hash = ((const struct piece_hashes *)(uintptr_t)*hash)->hash[piece];
	return true;
}

/* "lock" below: the caller holds it. "no locks": none may be held. */

/* --- stage_budget.c: lock --- */
bool stage_fits(const struct budget *b, uint64_t size, bool pages);
void stage_take(struct budget *b, uint64_t size);
void stage_give(struct budget *b, uint64_t size);
/* What SIZE bytes of a sample take in the kernel, with page and inode. */
uint64_t stage_real(uint64_t size);
uint64_t stage_real_limit(const struct budget *b);
/* Out of the drop queue; the ring's entry stays and says nothing any more. */
void stage_unqueue(struct clair_stage *st, uint32_t id);
bool stage_too_large(const struct budget *b, uint64_t size);
/* Whether RAM should keep ID. */
bool stage_may_keep(const struct clair_stage *st, uint32_t id);
/* The sample's pages are not in the kernel any more, or not counted any more. */
void stage_uncount(struct clair_stage *st, uint32_t id);
bool stage_has_home(const struct clair_stage *st, uint32_t id);
/* ID has, or loses, its place in the page cache for the run (counted by the caller). */
void stage_homed(struct clair_stage *st, uint32_t id);
void stage_unhomed(struct clair_stage *st, uint32_t id); /* if that was the last copy */
/* Room in the arena for ID, counted in ram; CLAIR_ARENA_NONE: there is none. */
uint32_t stage_arena_room(struct clair_stage *st, uint32_t id);
/* Such room that was not filled after all; takes CLAIR_ARENA_NONE. */
void stage_forget_arena(struct clair_stage *st, uint32_t id, uint32_t at);
/* A whole copy of ID is in the arena; in directory number DISK - 1; there no more. */
void stage_in_arena(struct clair_stage *st, uint32_t id, uint32_t at);
void stage_on_disk(struct clair_stage *st, uint32_t id, uint8_t disk);
void stage_off_disk(struct clair_stage *st, uint32_t id);

/* --- stage_lane.c: lock --- */
void lane_clear(struct clair_stage *st, struct lane *lane);
bool lane_has_epoch(const struct lane *lane, const struct clair_position *pos);
/* The tracker says that LANE is at POS. FRESH (taken): the epoch when the lane does not
 * have it. NEXT_EPOCH: UINT64_MAX when there is none. */
void lane_move(struct clair_stage *st, struct lane *lane, const struct clair_position *pos,
	       uint64_t next_epoch, struct clair_epoch *fresh);
/* LANE begins at entry LOW of EPOCH (taken). */
void lane_begin(struct lane *lane, struct clair_epoch *epoch, uint32_t low);
/* Entry INDEX of EPOCH was opened. */
void lane_opened(struct clair_stage *st, struct lane *lane, uint64_t epoch,
		 uint32_t index);
/* The next sample that LANE wants fetched; CLAIR_NO_ID: none for now. */
uint32_t lane_next(struct clair_stage *st, struct stream *s, struct lane *lane);
void lane_advance(struct clair_stage *st, struct lane *lane);
uint64_t lane_distance(const struct lane *lane);
void stage_queue_drop(struct clair_stage *st, uint32_t id);
/* Counts a sample that a READ brought into the page cache, so that it is dropped. */
void stage_adopt(struct clair_stage *st, uint32_t id);
/* READs brought in more than the budget: the farthest needs are given up. */
void stage_shed(struct clair_stage *st);
/* Whether it is time to drop; and, once begun, to go on: in batches, or each open would wake a
 * worker. */
bool stage_drop_due(const struct clair_stage *st);
bool stage_drop_more(const struct clair_stage *st);

/* --- stage_flight.c --- */
struct flight *flight_find(struct clair_stage *st, uint32_t id, uint32_t piece); /* lock */
struct flight *flight_new(struct clair_stage *st, uint32_t id, uint32_t piece);  /* lock */
void flight_unlist(struct clair_stage *st, struct flight *f);                    /* lock */
void flight_put(struct clair_stage *st, struct flight *f);                       /* lock */
/* Keeps F for the READs to come; lets the oldest go. lock */
void flight_hold(struct clair_stage *st, struct flight *f);
void flight_unhold(struct clair_stage *st, struct flight *f);            /* lock */
void flight_finish(struct clair_stage *st, struct flight *f, int error); /* lock */
/* Waits until F, which the caller holds, is loaded: 0, its error, or -ETIMEDOUT. lock */
int flight_await(struct clair_stage *st, struct flight *f);
/* A folder's time does not tell that a file in it was written anew: with a catalog of an
 * earlier mount the source is asked for the file's attributes, once. 0 or -ESTALE. */
int stage_still_the_same(struct clair_stage *st, uint32_t id);
/* Fills F from the fastest place that has it. 0, -ESTALE: changed. no locks */
int flight_load(struct clair_stage *st, struct flight *f);
/* Copies F into the room that it has in the arena / into a directory. no locks */
void flight_store(struct clair_stage *st, struct flight *f);
void flight_spill(struct clair_stage *st, struct flight *f);
/* The kernel is to forget pages and attributes of ID: a worker tells it. lock */
void stage_queue_invalid(struct clair_stage *st, uint32_t id);
/* A load said that ID is not what the catalog says. lock */
void stage_mark_changed(struct clair_stage *st, uint32_t id);

/* --- stage_work.c --- */
void *stage_worker(void *arg);
/* A READ came before any worker: the large file ID is staged from now on, when it belongs to
 * a stream and there is room. NULL: it is not. lock */
struct large *stage_demand_large(struct clair_stage *st, uint32_t id);
void stage_kick(struct clair_stage *st);  /* there may be work. lock */
int stage_spawn(struct clair_stage *st);  /* lock */
/* A thread with a small stack that runs MAIN(st) and that `stop` waits for. lock */
int stage_thread(struct clair_stage *st, void *(*main)(void *), pthread_t *thread);
void stage_measure(struct clair_stage *st, int64_t latency); /* lock */

/* --- stage_push.c: no locks --- */
void stage_run_flight(struct clair_stage *st, struct flight *f);
void stage_run_drop(struct clair_stage *st, struct job *job);
void stage_decide_keep(struct clair_stage *st);
/* Writes to the mount's file *FD, which it opens when it is -1. */
int stage_push_bytes(struct clair_stage *st, uint32_t id, int *fd, uint64_t offset,
		     const void *data, size_t size);
/* The page cache has ID now, or the attempt failed (R < 0). lock */
void stage_settle(struct clair_stage *st, uint32_t id, bool keep, int r);

/* --- stage_large.c --- */
struct large *stage_new_large(struct clair_stage *st, uint32_t id);
void stage_add_large(struct clair_stage *st, struct large *large);    /* lock */
struct large *stage_large_of(struct clair_stage *st, uint32_t id);    /* lock */
/* A flight for PIECE, which L counts as begun. NULL: it was begun before, or L failed. lock */
struct flight *stage_claim_piece(struct clair_stage *st, struct large *l, uint32_t piece);
/* What a worker is to do for L: a piece that a READ loaded, or one to load if there is ROOM;
 * NULL: nothing for now. lock */
struct flight *stage_next_piece(struct clair_stage *st, struct large *l, bool room);
void stage_run_piece(struct clair_stage *st, struct large *l, struct flight *f); /* no locks */
void stage_free_large(struct clair_stage *st, struct large *l);                  /* no locks */

/* --- stage_open.c: no locks --- */
/* The large file ID of the source, open for all: 0, -ESTALE: it differs from the catalog, or
 * as clair_source_open. */
int stage_file_get(struct clair_stage *st, uint32_t id, struct opened **out);
void stage_file_put(struct clair_stage *st, struct opened *o); /* takes NULL */
struct clair_source_file *stage_file_of(const struct opened *o);
void stage_close_files(struct clair_stage *st); /* at the end */

/* --- stage_choose.c: no locks --- */
/* A fetch of BYTES begins, and ends (OK: it brought them); returns and takes the time. */
int64_t stage_way_begin(struct clair_stage *st, enum stage_way way, uint64_t bytes);
void stage_way_end(struct clair_stage *st, enum stage_way way, uint64_t bytes, int64_t begun,
		   bool ok);
/* Tells the peers what this node holds. */
void stage_tell_held(struct clair_stage *st);
/* Whether the source is much faster than NODE, which keeps the sample; whether NODE is much
 * faster than the own directory. */
bool stage_prefers_source(struct clair_stage *st, uint16_t node, uint64_t bytes);
bool stage_prefers_peer(struct clair_stage *st, uint16_t node, uint64_t bytes);

/* --- stage_serve.c --- */
struct filling *stage_filling(const struct clair_stage *st, uint32_t id); /* lock */
/* The piece of F is here though not yet the whole file: F has it. no locks */
bool stage_filled(struct clair_stage *st, struct flight *f);
/* F is loaded and still listed: where this node keeps it, it goes to the arena or (whole ones)
 * to a directory. no locks */
void stage_keep_served(struct clair_stage *st, struct flight *f);
/* What waits to be loaded for other nodes is refused. no locks */
void stage_refuse_serves(struct clair_stage *st);
/* The stage will be freed: other nodes use nothing of it from here on. no locks */
void stage_leave_peers(struct clair_stage *st);

/* --- stage_events.c: lock --- */
/* A READ of ID arrived; LATE: a load was under way. */
void stage_account_read(struct clair_stage *st, uint32_t id, bool late);
void stage_account_stall(struct clair_stage *st, uint32_t id, int64_t ns);

#endif
