/* SPDX-License-Identifier: BSD-3-Clause */
/* Megatron-LM's GPTDataset and GPT-NeoX's GPT2Dataset: samples of SEQ tokens over shuffled
 * documents. Indices are samples, or with unit=document the documents that they lie in. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_groups.h"
#include "order_take.h"

struct state {
	struct clair_groups groups; /* documents: their tokens */
	bool neox, documents, drop_last;
	uint32_t world;
	uint64_t seed, seq, samples, extra, batch;
	struct clair_indices docs, shuffle;
	/* sample k begins in document docs[at[2k]], token at[2k + 1] */
	struct clair_indices at;
};

static void gpt_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_groups_finish(&s->groups);
	clair_indices_finish(&s->docs);
	clair_indices_finish(&s->shuffle);
	clair_indices_finish(&s->at);
	free(s);
}

/* EPOCHS copies of the documents, shuffled as one list. */
static int add_documents(struct state *s, struct clair_mt *mt, uint64_t epochs)
{
	size_t n = s->groups.count, before = s->docs.count;
	uint32_t *at = clair_take_room(&s->docs, (size_t)epochs * n);

	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < epochs * n; i++)
		at[i] = (uint32_t)(i % n);
	clair_np_shuffle(mt, s->docs.at + before, (size_t)epochs * n);
	return 0;
}

static int cut_samples(struct state *s, uint64_t count)
{
	uint64_t d = 0, off = 0;
	int r = clair_indices_append(&s->at, 0);

	if (r == 0)
		r = clair_indices_append(&s->at, 0);
	for (uint64_t k = 0; k < count && r == 0; k++) {
		uint64_t need = s->seq + s->extra;

		while (need) {
			uint64_t size = s->groups.size[s->docs.at[d]];

			if (need <= size - off) {
				off += need - s->extra;
				need = 0;
			} else if (d + 1 == s->docs.count) { /* the last, partial one */
				off = size - s->extra;
				break;
			} else {
				need -= size - off;
				d++;
				off = 0;
			}
		}
		r = clair_indices_append(&s->at, (uint32_t)d);
		if (r == 0)
			r = clair_indices_append(&s->at, (uint32_t)off);
	}
	return r;
}

static int add_shuffled(struct state *s, struct clair_mt *mt, uint64_t from, uint64_t to)
{
	uint32_t *at = clair_take_room(&s->shuffle, (size_t)(to - from));

	if (!at)
		return -ENOMEM;
	for (uint64_t i = from; i < to; i++)
		at[i - from] = (uint32_t)i;
	clair_np_shuffle(mt, at, (size_t)(to - from));
	return 0;
}

/* Megatron keeps a last epoch apart of which less than 80 % is needed. */
static int build(struct state *s, char **error)
{
	uint64_t tokens = s->groups.total, epochs = 1, head = 0;
	struct clair_mt mt;
	bool apart = false;

	if (tokens <= s->extra)
		return clair_bad(error, "documents: there are no tokens");
	if (s->neox)
		while ((epochs * tokens - 1) / s->seq < s->samples)
			epochs++;
	else if (s->samples)
		while (epochs * tokens < s->samples * s->seq + s->extra)
			epochs++;
	uint64_t all = epochs * tokens - s->extra, count = all / s->seq;
	if (count > UINT32_MAX || epochs * s->groups.count > UINT32_MAX)
		return clair_bad(error, "samples: more than 2^32");
	if (!s->neox && epochs > 1) {
		head = ((epochs - 1) * tokens - s->extra) / s->seq;
		apart = s->samples - head <
			(uint64_t)(0.8 * (double)((tokens - s->extra) / s->seq));
	}
	if (!s->drop_last) /* NumPy divides in single precision here */
		count = (uint64_t)(float)((float)all / (float)s->seq) +
			((float)((float)all / (float)s->seq) >
			 (float)(uint64_t)((float)all / (float)s->seq));
	clair_mt_seed(&mt, (uint32_t)s->seed);
	int r = add_documents(s, &mt, apart ? epochs - 1 : epochs);
	if (r == 0 && apart)
		r = add_documents(s, &mt, 1);
	if (r == 0)
		r = cut_samples(s, count);
	uint64_t cut = apart ? head : count;
	if (r == 0)
		r = add_shuffled(s, &mt, 0, cut);
	if (r == 0 && cut < count)
		r = add_shuffled(s, &mt, cut, count);
	return r;
}

static int gpt_words(struct state *s, const struct clair_order_params *params, char **error)
{
	static const char *const units[] = { "sample", "document", NULL };
	const struct clair_words *words = params->words;
	unsigned unit = 1;
	int r = clair_words_uint(words, "seed", 1234, UINT32_MAX, &s->seed, error);

	if (r == 0)
		r = clair_words_uint(words, "seq", 1024, UINT32_MAX, &s->seq, error);
	if (r == 0)
		r = clair_words_uint(words, "samples", 0, UINT32_MAX, &s->samples, error);
	if (r == 0 && !s->neox)
		r = clair_words_uint(words, "extra", 1, 1, &s->extra, error);
	if (r == 0 && !s->neox)
		r = clair_words_bool(words, "drop_partial", true, &s->drop_last, error);
	if (r == 0)
		r = clair_words_uint(words, "batch", 1, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_name_word(words, "unit", units, 1, &unit, error);
	if (r == 0 && (s->seq == 0 || s->batch == 0))
		r = clair_bad(error, "seq, batch: at least 1");
	s->documents = unit == 1;
	return r;
}

/* N counts samples or documents; how many of these there are says their file. */
static int read_documents(struct state *s, const struct clair_order_params *params,
			  char **error)
{
	const char *file = clair_words_get(params->words, "documents");
	struct clair_words none = { 0 };
	struct clair_order_params as = { params->n, 1, &none, params->sizes };
	autofree uint64_t *list = NULL;
	size_t count = 0;
	int r = 0;

	if (file) {
		r = clair_groups_read(file, UINT32_MAX, &list, &count, error);
		as.n = (uint32_t)count;
		as.sizes = list;
	} else if (!params->sizes && params->n) {
		r = clair_bad(error, "documents: a file with the tokens of each is needed");
	}
	if (r == 0 && s->documents && as.n != params->n)
		r = clair_bad(error, "documents=%s: %u lines for %u documents", file, as.n,
			      params->n);
	return r < 0 ? r : clair_groups_init(&s->groups, &as, "documents", error);
}

static int open_as(bool neox, const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->neox = neox;
	s->world = params->world;
	s->extra = 1;
	s->drop_last = true;
	int r = gpt_words(s, params, error);
	if (r == 0)
		r = read_documents(s, params, error);
	if (r == 0 && params->n)
		r = build(s, error);
	if (r < 0) {
		gpt_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int megatron_open(const struct clair_order_params *params, void **out, char **error)
{
	return open_as(false, params, out, error);
}

static int neox_open(const struct clair_order_params *params, void **out, char **error)
{
	return open_as(true, params, out, error);
}

/* The documents of a sample, those that were just named left out. */
static int emit_documents(const struct state *s, uint32_t sample, uint32_t *last,
			  struct clair_indices *out)
{
	const uint32_t *at = s->at.at + 2 * (size_t)sample;
	int r = 0;

	for (uint32_t d = at[0]; d <= at[2] && r == 0; d++) {
		uint32_t document = s->docs.at[d];

		if (document != *last)
			r = clair_indices_append(out, document);
		*last = document;
	}
	return r;
}

/* One pass over the shuffle index; micro batches go to the ranks in turn. */
static int gpt_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	uint64_t unit = s->batch * s->world, count = s->shuffle.count;
	uint32_t last = UINT32_MAX;
	int r = 0;

	(void)epoch;
	for (uint64_t start = 0; start + unit <= count && r == 0; start += unit)
		for (uint64_t k = 0; k < s->batch && r == 0; k++) {
			uint32_t sample = s->shuffle.at[start + rank * s->batch + k];

			r = s->documents ? emit_documents(s, sample, &last, out) :
					   clair_indices_append(out, sample);
		}
	return r;
}

static const struct clair_family_word words[] = {
	{ "seed", "1234", "--seed" },
	{ "documents", "", "a file with the tokens of each document, one a line" },
	{ "seq", "1024", "--seq-length" },
	{ "samples", "0", "samples that the run needs, 0: one epoch" },
	{ "batch", "1", "--micro-batch-size" },
	{ "unit", "document", "what indices are: sample, document" },
	{ "extra", "1", "add_extra_token_to_sequence" },
	{ "drop_partial", "1", "drop_last_partial_validation_sequence" },
	{ NULL },
};

const struct clair_family clair_family_megatron_gpt = {
	.name = "megatron-gpt",
	.help = "Megatron-LM's GPTDataset, dataloader_type single",
	.versions = "megatron-core 0.16",
	.words = words,
	.open = megatron_open,
	.epoch = gpt_epoch,
	.close = gpt_close,
};

const struct clair_family clair_family_gpt_neox = {
	.name = "gpt-neox",
	.help = "GPT-NeoX's GPT2Dataset, packed",
	.versions = "",
	.words = words,
	.open = neox_open,
	.epoch = gpt_epoch,
	.close = gpt_close,
};
