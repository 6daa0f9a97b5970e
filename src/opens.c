/* SPDX-License-Identifier: BSD-3-Clause */
#include "opens.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"

/* A pass is over when so many of that many opens in a row are of files that it has had. */
#define DECIDE 16
#define DECIDE_AGAIN 14
/* Where readers are not known, a file that was opened so many opens ago is the same sample. */
#define RECENT 16
/* A pass that draws the same files again and again is cut: at the number of files, but not
 * below this; and any at this many, so that what is kept unpacked stays small. */
#define SHORTEST_CUT 4096u
#define LONGEST_PASS (8u << 20)

/* --- processes ---------------------------------------------------------------------------- */

uint64_t clair_ticks_now(void)
{
	struct timespec t;
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * hz + (uint64_t)t.tv_nsec * hz / 1000000000;
}

static size_t read_proc(pid_t pid, const char *name, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	autofclose FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, size - 1, f) : 0;
	text[n] = '\0';
	return n;
}

/* WORLD_SIZE and RANK, as torchrun gives them. */
static void read_environment(struct clair_process *p)
{
	char text[32768];
	size_t n = read_proc(p->pid, "environ", text, sizeof text);

	for (const char *at = text; at < text + n; at += strlen(at) + 1) {
		if (!strncmp(at, "WORLD_SIZE=", 11))
			p->world = (uint32_t)strtoul(at + 11, NULL, 10);
		else if (!strncmp(at, "RANK=", 5))
			p->rank = (uint32_t)strtoul(at + 5, NULL, 10);
	}
	if (p->rank >= p->world)
		p->world = p->rank = 0;
}

struct clair_process clair_process_of(pid_t tid)
{
	struct clair_process p = { .pid = tid > 0 ? tid : 0 };
	char text[4096];

	if (!p.pid)
		return p;
	read_proc(tid, "status", text, sizeof text);
	const char *at = strstr(text, "\nTgid:");
	if (at)
		p.pid = (pid_t)strtol(at + 6, NULL, 10);
	read_proc(p.pid, "stat", text, sizeof text);
	/* The name, in brackets, may hold anything; after it come the state, the parent, and,
	 * as the 20th word, the start. */
	at = strrchr(text, ')');
	for (int word = 1; at && word <= 20; word++) {
		at = strchr(at + 1, ' ');
		if (at && word == 2)
			p.parent = (pid_t)strtol(at + 1, NULL, 10);
		if (at && word == 20)
			p.started = strtoull(at + 1, NULL, 10);
	}
	read_environment(&p);
	return p;
}

/* --- packing ------------------------------------------------------------------------------- */

static bool put_number(struct clair_opens *o, uint32_t v)
{
	if (o->packed_size + 5 > o->packed_room) {
		size_t room = o->packed_room ? o->packed_room * 2 : 65536;
		unsigned char *packed = realloc(o->packed, room);
		if (!packed)
			return false;
		o->packed = packed;
		o->packed_room = room;
	}
	for (; v >= 0x80; v >>= 7)
		o->packed[o->packed_size++] = (unsigned char)(v | 0x80);
	o->packed[o->packed_size++] = (unsigned char)v;
	return true;
}

bool clair_opens_unpack(const unsigned char **at, const unsigned char *end, uint32_t *ids,
			uint32_t count)
{
	const unsigned char *p = *at;
	uint32_t before = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t v = 0;
		unsigned shift = 0;

		do {
			if (p == end || shift > 28)
				return false;
			v |= (uint32_t)(*p & 0x7f) << shift;
			shift += 7;
		} while (*p++ & 0x80);
		/* The sign is in the lowest bit. */
		before += v & 1 ? ~(v >> 1) : v >> 1;
		ids[i] = before;
	}
	*at = p;
	return true;
}

int clair_opens_pack(struct clair_opens *o, const uint32_t *ids, size_t count)
{
	size_t begin = o->packed_size;
	uint32_t before = 0;

	if (!count || o->full)
		return 0;
	if (begin + count > CLAIR_OPENS_LIMIT || count > UINT32_MAX) {
		o->full = true;
		return 0;
	}
	if (o->pass_count == o->pass_room) {
		size_t room = o->pass_room ? o->pass_room * 2 : 64;
		struct clair_packed_pass *ends = realloc(o->ends, room * sizeof *ends);
		if (!ends)
			return -ENOMEM;
		o->ends = ends;
		o->pass_room = room;
	}
	for (size_t i = 0; i < count; i++) {
		uint32_t step = ids[i] - before;
		bool down = step >> 31;

		if (!put_number(o, down ? ~step << 1 | 1 : step << 1)) {
			o->packed_size = begin;
			return -ENOMEM;
		}
		before = ids[i];
	}
	if (o->packed_size > CLAIR_OPENS_LIMIT) {
		o->packed_size = begin;
		o->full = true;
		return 0;
	}
	o->ends[o->pass_count++] =
		(struct clair_packed_pass){ o->packed_size, (uint32_t)count };
	return 0;
}

/* --- passes --------------------------------------------------------------------------------- */

static void finish_pass(struct clair_pass *p)
{
	free(p->ids);
	free(p->by);
	free(p->readers);
	*p = (struct clair_pass){ 0 };
}

int clair_opens_init(struct clair_opens *o, const struct clair_catalog *catalog)
{
	*o = (struct clair_opens){ .catalog = catalog, .kept = 1, .candidate = SIZE_MAX };
	o->seen = calloc(clair_catalog_count(catalog) / 64 + 1, sizeof *o->seen);
	return o->seen ? 0 : -ENOMEM;
}

void clair_opens_finish(struct clair_opens *o)
{
	for (unsigned i = 0; i < o->kept; i++)
		finish_pass(&o->passes[i]);
	free(o->seen);
	free(o->packed);
	free(o->ends);
	*o = (struct clair_opens){ 0 };
}

static bool is_seen(const struct clair_opens *o, uint32_t id)
{
	return o->seen[id / 64] >> id % 64 & 1;
}

static struct clair_pass_reader *find_reader(struct clair_pass *p, pid_t pid)
{
	for (unsigned i = p->reader_count; i-- > 0;)
		if (p->readers[i].process.pid == pid)
			return &p->readers[i];
	return NULL;
}

static struct clair_pass_reader *add_reader(struct clair_pass *p, struct clair_process who)
{
	if (p->reader_count == CLAIR_PASS_READERS) /* they share the last */
		return &p->readers[p->reader_count - 1];
	if (!p->readers)
		p->readers = calloc(CLAIR_PASS_READERS, sizeof *p->readers);
	if (!p->readers)
		return NULL;
	struct clair_pass_reader *r = &p->readers[p->reader_count++];
	*r = (struct clair_pass_reader){ .process = who,
					 .last = { CLAIR_NO_ID, CLAIR_NO_ID } };
	return r;
}

static bool push(struct clair_pass *p, struct clair_pass_reader *r, uint32_t id)
{
	if (p->count == p->room) {
		size_t room = p->room ? p->room * 2 : 1024;
		uint32_t *ids = realloc(p->ids, room * sizeof *ids);
		if (ids)
			p->ids = ids;
		uint8_t *by = realloc(p->by, room);
		if (by)
			p->by = by;
		if (!ids || !by)
			return false;
		p->room = room;
	}
	p->ids[p->count] = id;
	p->by[p->count++] = (uint8_t)(r - p->readers);
	r->count++;
	r->last[1] = r->last[0];
	r->last[0] = id;
	return true;
}

/* The newest pass is over: it is packed, and a new one begins. */
static int begin_pass(struct clair_opens *o, uint64_t now)
{
	struct clair_pass *p = &o->passes[o->kept - 1];
	uint64_t number = p->number;

	if (!p->count) {
		p->begun = now;
		return 0;
	}
	int r = clair_opens_pack(o, p->ids, p->count);
	if (r < 0)
		return r;
	if (o->kept == CLAIR_PASSES_KEPT) {
		finish_pass(&o->passes[0]);
		memmove(o->passes, o->passes + 1, (CLAIR_PASSES_KEPT - 1) * sizeof *p);
		o->kept--;
	}
	o->passes[o->kept++] = (struct clair_pass){ .number = number + 1, .begun = now };
	memset(o->seen, 0, (clair_catalog_count(o->catalog) / 64 + 1) * sizeof *o->seen);
	o->candidate = SIZE_MAX;
	return 0;
}

static void see(struct clair_opens *o, uint32_t id)
{
	o->seen[id / 64] |= 1ull << id % 64;
}

/* What came from entry AT on is a pass of its own. */
static int split_pass(struct clair_opens *o, size_t at, uint64_t now)
{
	struct clair_pass *p = &o->passes[o->kept - 1];
	struct clair_pass tail = { .number = p->number + 1, .begun = now };

	for (size_t i = at; i < p->count; i++) {
		struct clair_pass_reader *old = &p->readers[p->by[i]];
		struct clair_pass_reader *r = find_reader(&tail, old->process.pid);

		old->count--;
		if (!r)
			r = add_reader(&tail, old->process);
		if (!r || !push(&tail, r, p->ids[i])) {
			finish_pass(&tail);
			return -ENOMEM;
		}
	}
	p->count = at;
	int r = begin_pass(o, now);
	if (r < 0) {
		finish_pass(&tail);
		return r;
	}
	finish_pass(&o->passes[o->kept - 1]);
	o->passes[o->kept - 1] = tail;
	for (size_t i = 0; i < tail.count; i++)
		see(o, tail.ids[i]);
	return 0;
}

/* The candidate has had its opens: was it the begin of a pass? */
static int decide(struct clair_opens *o, uint64_t now)
{
	struct clair_pass *p = &o->passes[o->kept - 1];
	size_t at = o->candidate;

	o->candidate = SIZE_MAX;
	if (o->again >= DECIDE_AGAIN)
		return split_pass(o, at, now);
	p->drawn = true;
	for (size_t i = at; i < p->count; i++)
		see(o, p->ids[i]);
	return 0;
}

static bool is_repeat(const struct clair_pass *p, const struct clair_pass_reader *r,
		      uint32_t id)
{
	if (r->process.pid)
		return r->last[0] == id || r->last[1] == id;
	for (size_t i = p->count, n = 0; i-- > 0 && n < RECENT; n++)
		if (p->ids[i] == id)
			return true;
	return false;
}

static bool is_long(const struct clair_opens *o, const struct clair_pass *p)
{
	uint32_t files = clair_catalog_count(o->catalog);

	return p->count >= LONGEST_PASS ||
	       (p->drawn && p->count >= (files > SHORTEST_CUT ? files : SHORTEST_CUT));
}

/* Whether WHO, who has not read in the newest pass yet, begins another one. */
static bool is_other_loader(struct clair_opens *o, const struct clair_process *who)
{
	struct clair_pass *p = &o->passes[o->kept - 1];

	const struct clair_process *first = NULL;

	/* Each rank has a loader of its own; they go together. */
	for (unsigned i = 0; i < p->reader_count && !first; i++)
		if (p->readers[i].process.rank == who->rank)
			first = &p->readers[i].process;
	if (!first)
		return false;
	/* Workers are started before the first of them reads: one that was started after the
	 * pass had begun is of another loader, or of the same in its next epoch. */
	if (who->started > p->begun + 1)
		return true;
	/* The main process reads what its workers do not, or the other way round. */
	if (who->pid && (who->pid == first->parent || who->parent == first->pid))
		return true;
	/* Workers that stay, of a loader that has been idle. */
	for (unsigned i = o->kept - 1; who->pid && i-- > 0;)
		if (find_reader(&o->passes[i], who->pid))
			return !find_reader(&o->passes[i], first->pid);
	return false;
}

bool clair_opens_add(struct clair_opens *o, struct clair_process who, uint64_t now, uint32_t id)
{
	struct clair_pass *p = &o->passes[o->kept - 1];
	struct clair_pass_reader *r = find_reader(p, who.pid);

	if (o->full || id >= clair_catalog_count(o->catalog))
		return false;
	if ((!r && is_other_loader(o, &who)) || is_long(o, p)) {
		if (begin_pass(o, now) < 0)
			return false;
		p = &o->passes[o->kept - 1];
		r = NULL;
	}
	if (!p->count)
		p->begun = now;
	if (!r)
		r = add_reader(p, who);
	if (!r)
		return false;
	if (is_repeat(p, r, id)) {
		o->repeats++;
		return false;
	}
	bool again = is_seen(o, id);
	if (again && !p->drawn && o->candidate == SIZE_MAX) {
		o->candidate = p->count;
		o->since = o->again = 0;
	}
	if (!push(p, r, id))
		return false;
	o->total++;
	if (o->candidate == SIZE_MAX) {
		see(o, id);
	} else {
		o->again += again;
		if (++o->since == DECIDE)
			decide(o, now);
	}
	return true;
}
