/* SPDX-License-Identifier: BSD-3-Clause */
/* At most two views are alive: the one that most lanes read, and the one that follows. An
 * open that fits neither is *strange*; when strange ones gather, the last opens are held
 * against other epochs (this one again, the first, any): where they lie close together
 * is where the reader is. */
#include "tracker_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

/* Entries past the low-water mark that count as the loader's window when it is not known
 * (workers * prefetch * batch), and the share of an epoch that does. */
#define WINDOW 512
#define WINDOW_SHARE 8
/* How many of the opens that a hypothesis is held against must lie together. */
#define ENOUGH 12
/* Strange opens less fitting ones at which the order is not trusted any more, and again. */
#define DISTRUST (32 * 4)
#define TRUST (8 * 4)
#define STRANGE_MAX (40 * 4)
/* Sampler outputs looked at in one search, beside those of the near epochs; in the first ones,
 * when a run that goes on at a late epoch is to be found soon; and epochs tried in all. */
#define EFFORT 2000000u
#define EFFORT_FIRST 32000000u
#define FIRST_SEARCHES 10u
#define FAR_EPOCHS 1000
#define NEAR 4
/* Decimal digits of certainty for a jump to a near epoch, and to any. */
#define SURE_NEAR 4
#define SURE_FAR 9
/* An open of something opened up to so many entries before the low-water mark, is the
 * same sample again. */
#define REPEAT_WINDOW 64

/* How far past its low-water mark a lane may read. */
static uint32_t window_of(const struct clair_tracker *t, uint32_t count)
{
	uint64_t window = count / WINDOW_SHARE;
	uint64_t known = (uint64_t)clair_stream_batch(t->stream) *
			 (2ull * clair_stream_workers(t->stream) + 2);

	if (window < WINDOW)
		window = WINDOW;
	return (uint32_t)(window > known ? window : known > NONE / 2 ? NONE / 2 : known);
}

static uint64_t following_epoch(const struct clair_tracker *t, uint64_t epoch)
{
	return t->repeats ? epoch : epoch + 1;
}

static void make_next(struct clair_tracker *t)
{
	uint64_t epoch = following_epoch(t, t->current->epoch);

	if (t->next && t->next->epoch == epoch)
		return;
	tracker_view_free(t->next, t->lane_count);
	t->next = NULL;
	if (epoch < clair_stream_end_epoch(t->stream))
		tracker_view_new(t, epoch, &t->next); /* without memory: it is unpredicted */
}

/* --- a lane moves ------------------------------------------------------------------ */

static void advance(struct clair_tracker *t, uint32_t l, uint32_t index)
{
	struct lane *lane = &t->lanes[l];
	struct view *v = lane->view;
	uint32_t count = v->lanes[l]->count, window = window_of(t, count);

	set_opened(v, v->base[l] + index);
	if (index >= lane->high)
		lane->high = index + 1;
	/* What lies more than a window back was left out or its event was lost. */
	if (lane->high - lane->low > window)
		lane->low = lane->high - window;
	while (lane->low < count && is_opened(v, v->base[l] + lane->low))
		lane->low++;
	if (lane->high < lane->low)
		lane->high = lane->low;
}

/* All lanes are past the current view: the next one takes its place. */
static void retire_view(struct clair_tracker *t)
{
	for (uint32_t l = 0; l < t->lane_count; l++)
		if (t->lanes[l].view == t->current)
			return;
	t->left = t->current->epoch;
	tracker_view_free(t->current, t->lane_count);
	t->current = t->next;
	t->next = NULL;
}

static void enter_next(struct clair_tracker *t, uint32_t l)
{
	t->lanes[l].view = t->next;
	t->lanes[l].low = t->lanes[l].high = 0;
	t->lanes[l].pass++;
}

/* The unopened entry of ID in V that its lane may read now, or NONE. */
static uint32_t fitting_entry(struct clair_tracker *t, struct view *v, uint32_t id,
			      bool begin)
{
	for (uint32_t e = v->where[id]; e != NONE; e = v->same ? v->same[e] : NONE) {
		uint32_t l = lane_of(t, v, e), index = e - v->base[l];
		const struct lane *lane = &t->lanes[l];
		uint32_t count = v->lanes[l]->count, window = window_of(t, count);

		if (is_opened(v, e))
			continue;
		/* One that was left out holds the low-water mark back for a while; what lies
		 * far behind it was given up. */
		if (!begin && lane->view == v && index + window / 4 >= lane->low &&
		    (index < lane->low + window || index < lane->high + window / 4))
			return e;
		/* The next epoch may begin when little of this one is left. */
		if (begin && lane->view != v && index < window) {
			uint32_t old = lane->view->lanes[l]->count;
			if (lane->low + window_of(t, old) / 2 >= old ||
			    lane->high + 1 >= old)
				return e;
		}
	}
	return NONE;
}

/* An entry of ID that was opened a little while ago. */
static bool is_repeat(struct clair_tracker *t, uint32_t id)
{
	for (int i = 0; i < 2; i++) {
		struct view *v = i ? t->next : t->current;
		for (uint32_t e = v ? v->where[id] : NONE; e != NONE;
		     e = v->same ? v->same[e] : NONE) {
			uint32_t l = lane_of(t, v, e), index = e - v->base[l];
			if (t->lanes[l].view == v && is_opened(v, e) &&
			    index + REPEAT_WINDOW >= t->lanes[l].low)
				return true;
		}
	}
	return false;
}

static bool predicted(struct clair_tracker *t, struct view *v, uint32_t e,
		      struct clair_open_result *result)
{
	uint32_t l = lane_of(t, v, e);

	if (t->lanes[l].view != v)
		enter_next(t, l);
	advance(t, l, e - v->base[l]);
	*result = (struct clair_open_result){ .use = CLAIR_USE_PREDICTED, .lane = l,
					      .epoch = v->epoch,
					      .index = e - v->base[l] };
	if (v == t->next)
		retire_view(t);
	return true;
}

static bool fits(struct clair_tracker *t, uint32_t id, struct clair_open_result *result)
{
	uint32_t e = fitting_entry(t, t->current, id, false);

	if (e != NONE)
		return predicted(t, t->current, e, result);
	if (t->next) {
		e = fitting_entry(t, t->next, id, false);
		if (e != NONE)
			return predicted(t, t->next, e, result);
	}
	if (is_repeat(t, id)) {
		*result = (struct clair_open_result){ .use = CLAIR_USE_REPEAT };
		/* A set smaller than the window: a pass that is over begins again. */
		bool over = true;
		for (uint32_t l = 0; l < t->lane_count; l++)
			over = over &&
			       t->lanes[l].low >= t->lanes[l].view->lanes[l]->count;
		if (!over)
			return true;
	}
	/* Only a lane near its end may begin the next epoch: make it when one is. */
	if (!t->next) {
		for (uint32_t l = 0; l < t->lane_count && !t->next; l++) {
			uint32_t count = t->current->lanes[l]->count;
			if (t->lanes[l].low + window_of(t, count) / 2 >= count ||
			    t->lanes[l].high + 1 >= count)
				make_next(t);
		}
	}
	e = t->next ? fitting_entry(t, t->next, id, true) : NONE;
	if (e != NONE)
		return predicted(t, t->next, e, result);
	return result->use == CLAIR_USE_REPEAT;
}

/* --- hypotheses --------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Whether NEEDED of M opens within SPAN of COUNT entries are no accident: the chance of
 * that for opens that have nothing to do with this order, the binomial tail's first term,
 * is below 10^-DIGITS. */
static bool no_accident(unsigned m, unsigned needed, uint32_t span, uint32_t count,
			double digits)
{
	int sign; /* lgamma would write it to a global */
	double choose = lgamma_r(m + 1., &sign) - lgamma_r(needed + 1., &sign) -
			lgamma_r(m - needed + 1., &sign);

	return choose + (needed - 1) * log((span + 1.) / count) < -digits * M_LN10;
}

/* Whether most of the recent opens lie together in EPOCH: then BEGIN is the lowest. The
 * more epochs are tried, the surer it must be. */
static bool epoch_fits(struct clair_tracker *t, uint64_t epoch, double digits,
		       uint32_t *begin)
{
	size_t lanes;
	const uint32_t *ranks = clair_stream_ranks(t->stream, &lanes);
	uint32_t at[2 * RECENT], found = 0, count = 0;

	for (size_t l = 0; l < lanes; l++) {
		struct clair_epoch *e;
		if (clair_stream_epoch(t->stream, epoch, ranks[l], &e) < 0)
			return false;
		count = e->count > count ? e->count : count;
		for (uint32_t i = 0; i < e->count && found < 2 * RECENT; i++)
			if (t->mark[e->ids[i]])
				at[found++] = i;
		clair_epoch_put(e);
	}
	uint32_t width = count / 16, needed = t->recent_count - t->recent_count / 5;
	if (width < 32)
		width = 32;
	uint64_t known = (uint64_t)clair_stream_batch(t->stream) *
			 (2ull * clair_stream_workers(t->stream) + 1);
	uint32_t likely = known ? (known > NONE / 2 ? NONE / 2 : (uint32_t)known) : WINDOW;
	if (width < likely)
		width = likely < count / 3 ? likely : count / 3 > width ? count / 3 : width;
	if (found < needed)
		return false;
	qsort(at, found, sizeof *at, by_number);
	for (uint32_t i = 0; i + needed <= found; i++) {
		uint32_t span = at[i + needed - 1] - at[i];
		if (span <= width &&
		    no_accident(t->recent_count, needed, span, count, digits)) {
			/* Near the start the first ones may just not have come yet. */
			*begin = at[i] <= width ? 0 : at[i];
			return true;
		}
	}
	return false;
}

static void forget_strange(struct clair_tracker *t)
{
	t->recent_count = t->recent_at = t->searches = 0;
	t->tried = t->search_at = 0;
}

/* Whether going back to the start of EPOCH means that it is read again and again: it was
 * read to its end, and at most a few opens seemed to be of the one that follows. */
static bool begins_again(const struct clair_tracker *t, uint64_t epoch)
{
	uint32_t high = 0, count = 0;

	for (uint32_t l = 0; l < t->lane_count; l++) {
		high += t->lanes[l].high;
		count += t->lanes[l].view->lanes[l]->count;
	}
	if (epoch == t->current->epoch)
		return high >= count * 9ull / 10 || t->next;
	return epoch == t->left && high <= window_of(t, count);
}

/* All lanes go to EPOCH, entry BEGIN; the recent opens count as read. */
static int jump(struct clair_tracker *t, uint64_t epoch, uint32_t begin, unsigned recent)
{
	struct view *v;

	int r = tracker_view_new(t, epoch, &v);
	if (r < 0)
		return r;
	if (begin == 0)
		t->repeats = begins_again(t, epoch);
	for (uint32_t l = 0; l < t->lane_count; l++) {
		t->lanes[l].pass += epoch != t->current->epoch || begin < t->lanes[l].low;
		t->lanes[l].view = v;
		t->lanes[l].low = t->lanes[l].high =
			begin < v->lanes[l]->count ? begin : v->lanes[l]->count;
	}
	tracker_view_free(t->current, t->lane_count);
	tracker_view_free(t->next, t->lane_count);
	t->current = v;
	t->next = NULL;
	for (unsigned i = 0; i < recent; i++) {
		uint32_t e = fitting_entry(t, v, t->recent[i], false);
		if (e != NONE)
			advance(t, lane_of(t, v, e), e - v->base[lane_of(t, v, e)]);
	}
	t->strange = 0;
	t->trusted = true;
	forget_strange(t);
	return 0;
}

/* The K-th epoch to try: this one, the next, the one before, the
 * first, then those around. */
static bool candidate(const struct clair_tracker *t, uint64_t k, uint64_t *epoch)
{
	uint64_t now = t->current->epoch, first = clair_stream_first_epoch(t->stream);

	if (k >= NEAR + 2 * FAR_EPOCHS)
		return false;
	if (k == 0)
		*epoch = now;
	else if (k == 1)
		*epoch = now + 1;
	else if (k == 2)
		*epoch = t->left != UINT64_MAX ? t->left : first;
	else if (k == 3)
		*epoch = first;
	else if (k % 2 == 0)
		*epoch = now + 2 + (k - NEAR) / 2;
	else
		*epoch = now - 1 - (k - NEAR - 1) / 2; /* may be below zero: skipped */
	return true;
}

/* The first ones soon after each other, then ever less often: an unknown order must not
 * cost the daemon's time. */
static void search_failed(struct clair_tracker *t)
{
	unsigned doublings = t->searches < FIRST_SEARCHES ? 0 : t->searches - FIRST_SEARCHES;
	uint64_t most = t->current->base[t->lane_count] / 64, wait = 4ull;

	wait <<= doublings < 16 ? doublings : 16;
	if (most < 256)
		most = 256;
	t->search_at = t->opens + (wait < most ? wait : most);
	t->searches++;
}

static bool search(struct clair_tracker *t)
{
	uint64_t effort = 0, epoch, end = clair_stream_end_epoch(t->stream);
	uint32_t begin = 0, total = t->current->base[t->lane_count];
	uint64_t most = t->searches < FIRST_SEARCHES ? EFFORT_FIRST : EFFORT;
	bool found = false;

	for (unsigned i = 0; i < t->recent_count; i++)
		t->mark[t->recent[i]] = 1;
	/* The near ones are tried each time, the far ones go on where they stopped. */
	uint64_t near = t->tried < NEAR ? t->tried : NEAR;
	for (uint64_t k = 0; effort < most && !found; k++) {
		if (k == near && t->tried > near)
			k = t->tried;
		if (!candidate(t, k, &epoch))
			break;
		if (k >= t->tried)
			t->tried = k + 1;
		if (epoch >= end || epoch > UINT64_MAX / 2)
			continue;
		effort += k < NEAR ? 0 : total + 1000ull;
		found = epoch_fits(t, epoch, k < NEAR ? SURE_NEAR : SURE_FAR, &begin);
	}
	for (unsigned i = 0; i < t->recent_count; i++)
		t->mark[t->recent[i]] = 0;
	if (found && jump(t, epoch, begin, t->recent_count) == 0)
		return true;
	search_failed(t);
	return false;
}

/* Whether most of the last strange opens lie at the begin of the epoch at hand, or of the one
 * after: cheap, so that a reader who begins at last, after passes of its own, is seen within a
 * batch however rare the searches have become. */
static bool seems_to_begin(const struct clair_tracker *t)
{
	const struct view *views[2] = { t->current, t->next };
	unsigned needed = t->recent_count - t->recent_count / 5;

	for (unsigned v = 0; v < 2; v++) {
		unsigned near = 0;

		if (!views[v])
			continue;
		for (unsigned i = 0; i < t->recent_count; i++) {
			uint32_t e = views[v]->where[t->recent[i]];
			if (e == NONE)
				continue;
			uint32_t l = lane_of(t, views[v], e), count = views[v]->lanes[l]->count;
			near += count > 4 * WINDOW && e - views[v]->base[l] < WINDOW;
		}
		if (near >= needed)
			return true;
	}
	return false;
}

/* --- opens --------------------------------------------------------------------------- */

static void remember(struct clair_tracker *t, uint32_t id)
{
	for (unsigned i = 0; i < t->recent_count; i++)
		if (t->recent[i] == id)
			return;
	t->recent[t->recent_at] = id;
	t->recent_at = (t->recent_at + 1) % RECENT;
	if (t->recent_count < RECENT)
		t->recent_count++;
}

static void fitted(struct clair_tracker *t)
{
	if (t->strange > 0)
		t->strange--;
	if (t->strange <= TRUST && !t->trusted)
		t->trusted = true;
	/* Strange ones of long ago say nothing about now. */
	if (t->strange == 0)
		forget_strange(t);
}

void clair_tracker_open(struct clair_tracker *t, uint32_t id, int64_t now,
			struct clair_open_result *result)
{
	(void)now;
	*result = (struct clair_open_result){ .use = CLAIR_USE_UNPREDICTED };
	t->opens++;
	if (id >= t->file_limit || !t->current)
		return;
	if (fits(t, id, result)) {
		if (result->use == CLAIR_USE_PREDICTED)
			fitted(t);
		return;
	}
	remember(t, id);
	t->strange = t->strange + 4 > STRANGE_MAX ? STRANGE_MAX : t->strange + 4;
	if (t->strange >= DISTRUST)
		t->trusted = false;
	if (t->recent_count >= ENOUGH && (t->opens >= t->search_at || seems_to_begin(t)) &&
	    search(t)) {
		/* This open is part of what was found. */
		result->use = CLAIR_USE_PREDICTED;
		result->epoch = t->current->epoch;
		result->moved = true;
		uint32_t e = t->current->where[id];
		result->lane = e == NONE ? 0 : lane_of(t, t->current, e);
		result->index = e == NONE ? 0 : e - t->current->base[result->lane];
	}
}

void clair_tracker_position(const struct clair_tracker *t, uint32_t lane,
			    struct clair_position *position)
{
	const struct lane *l = &t->lanes[lane];

	*position = (struct clair_position){ 0 };
	if (!l->view)
		return;
	*position = (struct clair_position){ .epoch = l->view->epoch, .low = l->low,
					     .high = l->high, .pass = l->pass };
}

bool clair_tracker_opened(const struct clair_tracker *t, uint32_t lane, uint32_t index)
{
	const struct view *v = t->lanes[lane].view;

	return v && index < v->lanes[lane]->count && is_opened(v, v->base[lane] + index);
}

uint64_t clair_tracker_next_epoch(const struct clair_tracker *t, uint32_t lane)
{
	const struct view *v = t->lanes[lane].view;

	return v ? following_epoch(t, v->epoch) : 0;
}

bool clair_tracker_trusted(const struct clair_tracker *t)
{
	return t->trusted;
}

int clair_tracker_set_epoch(struct clair_tracker *t, uint64_t epoch)
{
	return t->current ? jump(t, epoch, 0, 0) : -ENOENT;
}

void clair_tracker_free(struct clair_tracker *t)
{
	if (!t)
		return;
	tracker_view_free(t->current, t->lane_count);
	tracker_view_free(t->next, t->lane_count);
	free(t->lanes);
	free(t->mark);
	free(t);
}

int clair_tracker_new(struct clair_stream *stream, struct clair_tracker **out)
{
	uint32_t count;
	size_t lanes;
	const uint32_t *samples = clair_stream_samples(stream, &count);
	struct clair_tracker *t = calloc(1, sizeof *t);
	int r = -ENOMEM;

	if (!t)
		return r;
	clair_stream_ranks(stream, &lanes);
	t->stream = stream;
	t->lane_count = (uint32_t)lanes;
	t->trusted = true;
	t->left = UINT64_MAX;
	for (uint32_t i = 0; i < count; i++)
		if (samples[i] >= t->file_limit)
			t->file_limit = samples[i] + 1;
	t->lanes = calloc(lanes, sizeof *t->lanes);
	t->mark = calloc(t->file_limit + 1, 1);
	if (t->lanes && t->mark)
		r = clair_stream_known(stream) ?
			    tracker_view_new(t, clair_stream_first_epoch(stream), &t->current) :
			    0;
	if (r < 0) {
		clair_tracker_free(t);
		return r;
	}
	for (uint32_t l = 0; l < lanes; l++)
		t->lanes[l].view = t->current;
	*out = t;
	return 0;
}
