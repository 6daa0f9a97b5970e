/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs order: what a rank reads in an epoch, one a line. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "cli.h"
#include "index.h"
#include "sampler.h"
#include "stream.h"

int cmd_order(int argc, char **argv);

struct order {
	const char *n, *epoch, *rank, *limit, *stream;
	bool paths, list, json;
};

/* --- the list ----------------------------------------------------------------------- */

static json_t *family_json(const struct clair_family *family)
{
	json_t *words = json_array();

	for (const struct clair_family_word *w = family->words; w && w->name; w++)
		json_array_append_new(words, json_pack("{s:s, s:s, s:s}", "name", w->name,
						       "default", w->fallback, "help",
						       w->help));
	return json_pack("{s:s, s:s, s:s, s:o}", "name", family->name, "help", family->help,
			 "versions", family->versions ? family->versions : "", "words",
			 words);
}

static int list_json(void)
{
	json_t *samplers = json_array(), *indices = json_array();
	const struct clair_family *family;
	const struct clair_index *index;

	for (size_t i = 0; (family = clair_family_at(i)); i++)
		json_array_append_new(samplers, family_json(family));
	json_array_append_new(samplers,
			      json_pack("{s:s, s:s, s:s, s:[]}", "name", "list:FILE", "help",
					"the lines of FILE: index or path, an empty line "
					"between epochs",
					"versions", "", "words"));
	for (size_t i = 0; (index = clair_index_at(i)); i++)
		json_array_append_new(indices, json_pack("{s:s, s:s}", "name", index->name,
							 "help", index->help));
	json_t *all = json_pack("{s:o, s:o}", "samplers", samplers, "indices", indices);
	int r = all ? json_dumpf(all, stdout, JSON_INDENT(1)) : -1;
	putchar('\n');
	json_decref(all);
	return r < 0 ? cli_failure("the list cannot be written") : CLI_OK;
}

static int list_text(void)
{
	const struct clair_family *family;
	const struct clair_index *index;

	printf("sampler=\n");
	for (size_t i = 0; (family = clair_family_at(i)); i++) {
		printf("  %-22s %s\n", family->name, family->help);
		if (family->versions && *family->versions)
			printf("  %-22s   versions: %s\n", "", family->versions);
		for (const struct clair_family_word *w = family->words; w && w->name; w++)
			printf("  %-22s   %s=%s: %s\n", "", w->name, w->fallback, w->help);
	}
	printf("  %-22s %s\n", "list:FILE",
	       "the lines of FILE: index or path, an empty line between epochs");
	printf("index=\n");
	for (size_t i = 0; (index = clair_index_at(i)); i++)
		printf("  %-22s %s\n", index->name, index->help);
	return CLI_OK;
}

/* --- the order ---------------------------------------------------------------------- */

struct ready {
	struct clair_catalog *catalog; /* or NULL */
	struct clair_stream *stream;
};

static int open_source(const struct order *order, struct cli *cli,
		       const struct clair_words *words, struct ready *ready)
{
	autofree char *absolute = NULL;
	char *error = NULL;
	int status = CLI_OK;
	uint32_t folder = 0;

	autoclose int fd = cli_open_source(cli->args[0], &absolute, &status);
	if (fd < 0)
		return status;
	ready->catalog = cli_catalog(&cli->options, fd, absolute, &status);
	if (!ready->catalog)
		return status;
	if (order->stream) {
		folder = clair_catalog_find(ready->catalog, order->stream);
		if (folder == CLAIR_NO_ID ||
		    clair_catalog_entry(ready->catalog, folder)->kind != CLAIR_FOLDER)
			return cli_mistake("--stream %s: the source has no such folder",
					   order->stream);
	}
	int r = clair_stream_new(ready->catalog, folder, words, &ready->stream, &error);
	return r < 0 ? cli_error(r, error, "the order") : CLI_OK;
}

static int open_numbers(const struct order *order, const struct clair_words *words,
			struct ready *ready)
{
	char *error = NULL;
	uint64_t n;

	if (!cli_number("n", order->n, UINT32_MAX - 1, &n))
		return CLI_MISTAKE;
	int r = clair_stream_new_numbers((uint32_t)n, words, &ready->stream, &error);
	return r < 0 ? cli_error(r, error, "the order") : CLI_OK;
}

static void print_order(const struct order *order, const struct ready *ready,
			const struct clair_indices *list, const uint32_t *names,
			uint64_t limit)
{
	for (size_t i = 0; i < list->count && i < limit; i++) {
		char path[8192];

		if (!order->paths) {
			printf("%u\n", list->at[i]);
			continue;
		}
		clair_catalog_path(ready->catalog, names[list->at[i]], path, sizeof path);
		puts(path);
	}
}

static int run(const struct order *order, const struct ready *ready)
{
	struct clair_stream *stream = ready->stream;
	struct clair_indices list = { 0 };
	autofree uint32_t *names = NULL;
	autofree char *error = NULL;
	uint32_t count;
	uint64_t epoch = clair_stream_first_epoch(stream), rank, limit = UINT64_MAX;
	size_t ranks;

	rank = clair_stream_ranks(stream, &ranks)[0];
	if (!clair_stream_known(stream))
		return cli_mistake("the order is not known: give seed=… (and sampler=…), "
				   "`clairfs order --list` shows the samplers");
	if ((order->epoch && !cli_number("epoch", order->epoch, UINT64_MAX / 4, &epoch)) ||
	    (order->rank && !cli_number("rank", order->rank, UINT32_MAX, &rank)) ||
	    (order->limit && !cli_number("limit", order->limit, UINT64_MAX, &limit)))
		return CLI_MISTAKE;
	if (rank >= clair_stream_world(stream))
		return cli_mistake("--rank %llu: with world=%u ranks are 0 to %u",
				   (unsigned long long)rank, clair_stream_world(stream),
				   clair_stream_world(stream) - 1);
	int r = clair_stream_indices(stream, epoch, (uint32_t)rank, &list);
	/* Paths as the loader opens them, where samples are what links lead to. */
	if (r == 0 && order->paths)
		r = clair_index_names(ready->catalog, clair_stream_folder(stream),
				      clair_stream_index(stream), &names, &count, &error);
	if (r == 0)
		print_order(order, ready, &list, names, limit);
	clair_indices_finish(&list);
	if (r < 0)
		return cli_failure("the order of epoch %llu cannot be computed: %s",
				   (unsigned long long)epoch, strerror(-r));
	return fflush(stdout) == 0 ? CLI_OK :
				     cli_failure("standard output: %s", strerror(errno));
}

static int order_with(struct order *order, struct cli *cli)
{
	struct clair_words words = { 0 };
	struct ready ready = { 0 };

	if (order->list)
		return cli->count || order->n ? cli_mistake("--list takes no SOURCE or --n") :
		       order->json	      ? list_json() :
						list_text();
	if (order->json)
		return cli_mistake("--json: only with --list");
	if (!cli->count == !order->n)
		return cli_mistake("give a SOURCE or --n N, one of the two");
	if (order->paths && order->n)
		return cli_mistake("--paths: needs a SOURCE");
	if (order->stream && order->n)
		return cli_mistake("--stream: needs a SOURCE");
	int status = CLI_OK;
	int r = clair_options_stream_words(
		&cli->options, order->stream ? order->stream : "", &words);
	if (r < 0)
		status = cli_error(r, NULL, "words");
	else if (order->n)
		status = open_numbers(order, &words, &ready);
	else
		status = open_source(order, cli, &words, &ready);
	if (status == CLI_OK)
		status = run(order, &ready);
	clair_stream_free(ready.stream);
	clair_catalog_free(ready.catalog);
	clair_words_finish(&words);
	return status;
}

int cmd_order(int argc, char **argv)
{
	struct order order = { 0 };
	const struct cli_flag flags[] = {
		{ "n", "N", "the number of samples, instead of a SOURCE", &order.n, NULL },
		{ "epoch", "E", "which epoch (the option epoch, or 0)", &order.epoch, NULL },
		{ "rank", "R", "whose order (the first of the option ranks)", &order.rank,
		  NULL },
		{ "limit", "K", "the first K only", &order.limit, NULL },
		{ "stream", "PATH", "of this folder of the source", &order.stream, NULL },
		{ "paths", NULL, "paths relative to SOURCE instead of indices", NULL,
		  &order.paths },
		{ "list", NULL, "the samplers and dataset orders that there are", NULL,
		  &order.list },
		{ "json", NULL, "--list as JSON", NULL, &order.json },
		{ NULL },
	};
	const struct cli_spec spec = {
		.verb = "order",
		.usage = "(SOURCE | --n N) [-o OPTIONS] [FLAGS] | --list [--json]",
		.help = "Prints what rank R reads in epoch E, in the order in which it reads: "
			"one index\ninto the dataset order a line.",
		.flags = flags,
		.most = 1,
	};
	struct cli cli;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	status = order_with(&order, &cli);
	cli_finish(&cli);
	return status;
}
