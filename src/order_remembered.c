/* SPDX-License-Identifier: BSD-3-Clause */
/* What an earlier run opened, as an order: its passes are the epochs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "remember.h"
#include "sampler.h"

struct state {
	uint32_t world;
	struct clair_remembered *opens;
};

static void remembered_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_remembered_free(s->opens);
	free(s);
}

static int remembered_open(const struct clair_order_params *params, void **out, char **error)
{
	const char *file = clair_words_get(params->words, "opens");

	if (!file || !*file)
		return clair_bad(error, "sampler=remembered: opens=FILE, the opens of an "
					"earlier run, is missing");
	struct state *s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->world = params->world;
	int r = clair_remember_load_opens(file, &s->opens);
	if (r == 0 && (s->opens->samples != params->n || !s->opens->passes))
		r = clair_bad(error,
			      "opens=%s: these opens are of other data (%u samples, not %u)",
			      file, s->opens->samples, params->n);
	else if (r == -EBADMSG)
		r = clair_bad(error, "opens=%s: the file is damaged", file);
	else if (r < 0 && r != -ENOMEM)
		r = clair_bad(error, "opens=%s: %s", file, strerror(-r));
	if (r < 0) {
		remembered_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int remembered_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	/* What came after the last one is not known: it again, as good as any. */
	uint32_t pass = epoch < s->opens->passes ? (uint32_t)epoch : s->opens->passes - 1;
	uint32_t count = s->opens->counts[pass];
	autofree uint32_t *ids = malloc((count + 1ul) * sizeof *ids);

	if (!ids)
		return -ENOMEM;
	int r = clair_remembered_pass(s->opens, pass, ids);
	for (uint64_t i = rank; i < count && r == 0; i += s->world)
		r = clair_indices_append(out, ids[i]);
	return r;
}

static const struct clair_family_word words[] = {
	{ "opens", "", "the file with the opens of an earlier run" },
	{ NULL },
};

const struct clair_family clair_family_remembered = {
	.name = "remembered",
	.help = "what an earlier run opened, pass by pass",
	.versions = "",
	.words = words,
	.open = remembered_open,
	.epoch = remembered_epoch,
	.close = remembered_close,
};
