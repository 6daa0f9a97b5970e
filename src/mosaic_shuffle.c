/* SPDX-License-Identifier: BSD-3-Clause */
#include "mosaic_shuffle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "numpy_random.h"

/* Samples [low, high) of one shard; canonical node p owns spans [first[p], first[p + 1]). */
struct span {
	uint32_t low, high;
};

struct spans {
	struct span *at;
	uint32_t count;
	uint32_t *first;
};

static void spans_finish(struct spans *s)
{
	free(s->at);
	free(s->first);
}

#define autospans __attribute__((cleanup(spans_finish)))

static int shuffle_spans(struct clair_pcg64 *g, struct span *spans, size_t n)
{
	autofree uint32_t *order = malloc((n + 1) * sizeof *order);
	autofree struct span *copy = malloc((n + 1) * sizeof *copy);

	if (!order || !copy)
		return -ENOMEM;
	clair_pcg64_permutation(g, (uint32_t)n, order);
	memcpy(copy, spans, n * sizeof *copy);
	for (size_t i = 0; i < n; i++)
		spans[i] = copy[order[i]];
	return 0;
}

/* Cuts SPANS (N of them, TOTAL samples) into as many parts of equal length as there are
 * canonical nodes. */
static void divide(struct spans *to, struct span *spans, uint32_t n, uint32_t total,
		   uint32_t parts)
{
	uint64_t seen = 0;
	uint32_t k = 0;

	to->first[0] = 0;
	for (uint32_t p = 0; p < parts; p++) {
		uint64_t end = (uint64_t)total * (p + 1) / parts;

		while (k < n) {
			uint32_t length = spans[k].high - spans[k].low;

			if (end < seen + length) {
				if (seen < end) {
					uint32_t cut = spans[k].low + (uint32_t)(end - seen);

					to->at[to->count++] = (struct span){ spans[k].low, cut };
					spans[k].low = cut;
					seen = end;
				}
				break;
			}
			to->at[to->count++] = spans[k++];
			seen += length;
		}
		to->first[p + 1] = to->count;
	}
}

static int spans_room(const struct mosaic *m, struct spans *to)
{
	size_t room = (size_t)m->groups->count + m->canonical + 1;

	to->at = malloc(room * sizeof *to->at);
	to->first = malloc(((size_t)m->canonical + 1) * sizeof *to->first);
	to->count = 0;
	return to->at && to->first ? 0 : -ENOMEM;
}

/* Shards in the run's order, cut among the nodes, and shuffled inside each for the epoch;
 * G goes on from there. */
static int prepare(const struct mosaic *m, uint64_t epoch, struct spans *to,
		   struct clair_pcg64 *g)
{
	const struct clair_groups *s = m->groups;
	autofree struct span *all = malloc(((size_t)s->count + 1) * sizeof *all);
	int r = spans_room(m, to);

	if (!all || r < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->count; i++)
		all[i] = (struct span){ s->start[i], s->start[i] + s->size[i] };
	clair_pcg64_seed(g, m->seed);
	r = shuffle_spans(g, all, s->count);
	if (r < 0)
		return r;
	divide(to, all, s->count, s->total, m->canonical);
	clair_pcg64_seed(g, m->seed + epoch);
	for (uint32_t p = 0; p < m->canonical && r == 0; p++)
		r = shuffle_spans(g, to->at + to->first[p], to->first[p + 1] - to->first[p]);
	return r;
}

static size_t write_span(const struct span *span, uint32_t *out)
{
	for (uint32_t i = span->low; i < span->high; i++)
		*out++ = i;
	return span->high - span->low;
}

static int py1s(const struct mosaic *m, uint64_t epoch, uint32_t *out)
{
	autospans struct spans s = { 0 };
	struct clair_pcg64 g;
	int r = prepare(m, epoch, &s, &g);

	for (uint32_t i = 0; i < s.count && r == 0; i++) {
		size_t n = write_span(&s.at[i], out);

		clair_pcg64_shuffle(&g, out, n);
		out += n;
	}
	return r;
}

/* Shards and their samples shuffled for the run; then pieces and their samples again for
 * the epoch. Spans are ranges of the first of the two orders here. */
static int py2s(const struct mosaic *m, uint64_t epoch, uint32_t *out)
{
	const struct clair_groups *s = m->groups;
	autospans struct spans pieces = { 0 };
	autofree struct span *all = malloc(((size_t)s->count + 1) * sizeof *all);
	autofree uint32_t *order = malloc(((size_t)s->count + 1) * sizeof *order);
	autofree uint32_t *ids = malloc(((size_t)s->total + 1) * sizeof *ids);
	struct clair_pcg64 g;
	uint32_t at = 0;
	int r = spans_room(m, &pieces);

	if (!all || !order || !ids || r < 0)
		return -ENOMEM;
	clair_pcg64_seed(&g, m->seed);
	clair_pcg64_permutation(&g, s->count, order);
	for (uint32_t i = 0; i < s->count; i++) {
		uint32_t k = order[i];
		struct span samples = { s->start[k], s->start[k] + s->size[k] };

		all[i] = (struct span){ at, at + s->size[k] };
		clair_pcg64_shuffle(&g, ids + at, write_span(&samples, ids + at));
		at += s->size[k];
	}
	divide(&pieces, all, s->count, s->total, m->canonical);
	clair_pcg64_seed(&g, m->seed + epoch);
	for (uint32_t p = 0; p < m->canonical && r == 0; p++) {
		struct span *mine = pieces.at + pieces.first[p];
		uint32_t n = pieces.first[p + 1] - pieces.first[p];

		r = shuffle_spans(&g, mine, n);
		for (uint32_t i = 0; i < n && r == 0; i++) {
			uint32_t length = mine[i].high - mine[i].low;

			memcpy(out, ids + mine[i].low, length * sizeof *out);
			clair_pcg64_shuffle(&g, out, length);
			out += length;
		}
	}
	return r;
}

/* A block's length: within a quarter of the mean. */
static int64_t block_length(struct clair_pcg64 *g, uint32_t block)
{
	int64_t low = (int64_t)(0.75 * block), high = (int64_t)(1.25 * block);

	return low + (int64_t)clair_pcg64_bounded(g, (uint64_t)(high - 1 - low));
}

static int shuffle_blocks(const struct mosaic *m, struct clair_pcg64 *g, int64_t stagger,
			   uint32_t *ids, int64_t count)
{
	autofree int64_t *cuts = NULL;
	size_t n = 0, room = 0;

	/* the lengths are all drawn before the first shuffle */
	for (int64_t at = 0; at < count;) {
		int64_t length = m->algorithm == MOSAIC_PY1BR ? block_length(g, m->block) :
								m->block;
		int64_t low = at - stagger > 0 ? at - stagger : 0;
		int64_t high = at + length - stagger < count ? at + length - stagger : count;

		if (n + 2 > room) {
			room = room ? 2 * room : 64;
			int64_t *more = realloc(cuts, room * sizeof *cuts);
			if (!more)
				return -ENOMEM;
			cuts = more;
		}
		cuts[n++] = low;
		cuts[n++] = high;
		at += high - low;
	}
	for (size_t i = 0; i < n; i += 2)
		if (cuts[i + 1] > cuts[i])
			clair_pcg64_shuffle(g, ids + cuts[i], (size_t)(cuts[i + 1] - cuts[i]));
	return 0;
}

static int py1b(const struct mosaic *m, uint64_t epoch, uint32_t *out)
{
	autospans struct spans s = { 0 };
	autofree int64_t *stagger = calloc((size_t)m->canonical + 1, sizeof *stagger);
	struct clair_pcg64 g;
	int r = prepare(m, epoch, &s, &g);

	if (!stagger || r < 0)
		return r < 0 ? r : -ENOMEM;
	int64_t most = (int64_t)(0.75 * m->block);
	for (uint32_t p = 0; m->algorithm == MOSAIC_PY1BR && p < m->canonical; p++)
		stagger[p] = most > 0 ? (int64_t)clair_pcg64_bounded(&g, (uint64_t)most - 1) : 0;
	for (uint32_t p = 0; p < m->canonical; p++) {
		size_t n = 0;

		for (uint32_t i = s.first[p]; i < s.first[p + 1]; i++)
			n += write_span(&s.at[i], out + n);
		r = shuffle_blocks(m, &g, stagger[p], out, (int64_t)n);
		if (r < 0)
			return r;
		out += n;
	}
	return 0;
}

struct place {
	double at;
	uint32_t sample, nth;
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->at < y->at || x->at > y->at)
		return x->at < y->at ? -1 : 1;
	return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/* Every sample of a shard is moved within a window around the shard, by one draw each. */
static void spread(const struct mosaic *m, struct clair_pcg64 *g, const struct span *spans,
		   uint32_t count, struct place *places, uint32_t n)
{
	uint32_t off = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t size = spans[i].high - spans[i].low;
		double cut = (double)(block_length(g, m->block) - (int64_t)size) / 2;

		if (cut < 0)
			cut = 0;
		double low = -cut > -(double)off ? -cut : -(double)off;
		double rest = (double)(n - off - size), high = cut < rest ? cut : rest;
		for (uint32_t k = off; k < off + size; k++)
			places[k].at = (double)k + (low + (high - low) * clair_pcg64_double(g));
		off += size;
	}
}

static int py1e(const struct mosaic *m, uint64_t epoch, uint32_t *out)
{
	autospans struct spans s = { 0 };
	struct clair_pcg64 g;
	int r = prepare(m, epoch, &s, &g);

	for (uint32_t p = 0; p < m->canonical && r == 0; p++) {
		const struct span *mine = s.at + s.first[p];
		uint32_t count = s.first[p + 1] - s.first[p], n = 0;

		for (uint32_t i = 0; i < count; i++) {
			size_t length = write_span(&mine[i], out + n);

			clair_pcg64_shuffle(&g, out + n, length);
			n += (uint32_t)length;
		}
		autofree struct place *places = malloc(((size_t)n + 1) * sizeof *places);
		if (!places)
			return -ENOMEM;
		spread(m, &g, mine, count, places, n);
		for (uint32_t k = 0; k < n; k++) {
			places[k].sample = out[k];
			places[k].nth = k;
		}
		qsort(places, n, sizeof *places, compare_places);
		for (uint32_t k = 0; k < n; k++)
			out[k] = places[k].sample;
		out += n;
	}
	return r;
}

int mosaic_shuffle(const struct mosaic *m, uint64_t epoch, uint32_t *out)
{
	struct clair_pcg64 g;

	switch (m->algorithm) {
	case MOSAIC_PY1E:
		return py1e(m, epoch, out);
	case MOSAIC_PY1BR:
	case MOSAIC_PY1B:
		return py1b(m, epoch, out);
	case MOSAIC_PY1S:
		return py1s(m, epoch, out);
	case MOSAIC_PY2S:
		return py2s(m, epoch, out);
	case MOSAIC_NAIVE:
		clair_pcg64_seed(&g, m->seed + epoch);
		clair_pcg64_permutation(&g, m->groups->total, out);
		return 0;
	}
	return -EINVAL;
}
