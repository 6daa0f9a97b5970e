/* SPDX-License-Identifier: BSD-3-Clause */
/* What real loaders opened through a mount (tests/orders/record_*.py made the traces) against the
 * orders of the families. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "discover.h"
#include "order_vectors.h"

/* The Kth sample that worker W of WORKERS opens, as a place in the order; UINT32_MAX: no more. */
static uint32_t place_of(uint32_t k, uint32_t w, uint32_t workers, uint32_t batch, uint32_t count)
{
	uint64_t place = workers ? ((uint64_t)(k / batch) * workers + w) * batch + k % batch : k;

	return place < count ? (uint32_t)place : UINT32_MAX;
}

static void check_epoch(const json_t *c, const json_t *epoch, const struct clair_indices *order,
			const char *what)
{
	const json_t *by = json_object_get(epoch, "by"), *opened = json_object_get(epoch, "order");
	uint32_t workers = (uint32_t)vectors_u64(c, "workers");
	uint32_t batch = (uint32_t)vectors_u64(c, "batch"), done[64] = { 0 };
	size_t n = json_array_size(opened);

	/* drop_last leaves out less than a batch. */
	cr_assert(n <= order->count && n + batch > order->count, "%s: %zu opens", what, n);
	cr_assert_eq(json_array_size(by), n);
	for (size_t i = 0; i < n; i++) {
		uint32_t w = (uint32_t)json_integer_value(json_array_get(by, i));
		uint32_t got = (uint32_t)json_integer_value(json_array_get(opened, i));

		cr_assert_lt(w, workers ? workers : 1, "%s: one process too many", what);
		uint32_t place = place_of(done[w]++, w, workers, batch, (uint32_t)n);
		cr_assert(place != UINT32_MAX && order->at[place] == got,
			  "%s: open %zu is %u by process %u", what, i, got, w);
	}
}

static void write_file(const json_t *list, char name[])
{
	int fd = mkstemp(name);
	autofclose FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	cr_assert_not_null(f);
	for (size_t i = 0; i < json_array_size(list); i++)
		fprintf(f, "%.17g\n", json_number_value(json_array_get(list, i)));
}

static void set_words(struct clair_words *words, json_t *c)
{
	const char *key = NULL;
	json_t *v = NULL;

	json_object_foreach(json_object_get(c, "words"), key, v)
		clair_words_set(words, key, vectors_text(json_object_get(c, "words"), key));
	json_object_foreach(json_object_get(c, "files"), key, v) {
		char name[] = "/tmp/clair-recipes-XXXXXX";

		write_file(v, name);
		clair_words_set(words, key, name);
	}
	clair_words_set(words, "workers", vectors_text(c, "workers"));
	clair_words_set(words, "batch", vectors_text(c, "batch"));
}

static void check_case(json_t *c)
{
	struct clair_words words = { 0 };
	struct clair_order_params params = { .n = (uint32_t)vectors_u64(c, "n"), .world = 1,
					     .words = &words };
	struct clair_sampler *sampler = NULL;
	struct clair_indices order = { 0 };
	char what[128], *error = NULL;
	json_t *epoch = NULL;
	size_t e = 0;

	snprintf(what, sizeof what, "%s (%s), %s workers", vectors_text(c, "name"),
		 vectors_text(c, "package"), vectors_text(c, "workers"));
	set_words(&words, c);
	int r = clair_sampler_new(vectors_text(c, "sampler"), &params, NULL, NULL, &sampler,
				  &error);
	cr_assert_eq(r, 0, "%s: %s", what, error ? error : "");
	json_array_foreach(json_object_get(c, "epochs"), e, epoch) {
		cr_assert_eq(clair_sampler_epoch(sampler, e, 0, &order), 0);
		check_epoch(c, epoch, &order, what);
	}
	cr_assert_eq(e, 2);
	if (clair_words_get(&words, "weights"))
		unlink(clair_words_get(&words, "weights"));
	clair_sampler_free(sampler);
	clair_indices_finish(&order);
	clair_words_finish(&words);
}

Test(recipes, torch_through_a_mount)
{
	json_t *root = vectors_load("traces/torch"), *c = NULL;
	size_t i = 0;

	cr_assert_gt(json_array_size(root), 20);
	json_array_foreach(root, i, c)
		check_case(c);
	json_decref(root);
}
