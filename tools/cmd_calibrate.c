/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs calibrate: how fast source, memory and cache folders of this host are. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate.h"
#include "cleanup.h"
#include "cli.h"

#define SECONDS 1.0 /* a number of readers */
#define MOST_READERS 32u
#define FOLDER_BYTES (128u << 20)

int cmd_calibrate(int argc, char **argv);

struct calibration {
	struct clair_model model;
	json_t *caches; /* of each folder */
};

static int measure_source(struct cli *cli, struct calibration *c, char **absolute)
{
	struct clair_stats stats = { 0 };
	struct clair_source *source = NULL;
	int status = CLI_OK;

	int fd = cli_open_source(cli->args[0], absolute, &status);
	if (fd < 0)
		return status;
	struct clair_catalog *catalog = cli_catalog(&cli->options, fd, *absolute, &status);
	if (!catalog) {
		close(fd);
		return status;
	}
	int r = clair_source_new(fd, catalog, &stats, &source);
	if (r == 0)
		r = clair_calibrate_source(source, catalog, MOST_READERS, SECONDS,
					   &c->model.pfs);
	clair_source_free(source);
	clair_catalog_free(catalog);
	if (r == -ENODATA)
		return cli_failure("%s: too few files to measure its bandwidth", *absolute);
	return r < 0 ? cli_failure("%s: %s", *absolute, strerror(-r)) : CLI_OK;
}

static int measure_folders(const struct clair_options *o, struct calibration *c)
{
	for (size_t i = 0; i < o->cache_count; i++) {
		struct clair_model_class class = { 0 };
		const char *path = o->caches[i].path;

		if (mkdir(path, 0700) < 0 && errno != EEXIST)
			return cli_failure("%s: %s", path, strerror(errno));
		int r = clair_calibrate_folder(path, FOLDER_BYTES, &class);
		if (r < 0)
			return cli_failure("%s: %s", path, strerror(-r));
		json_array_append_new(
			c->caches, json_pack("{s:s, s:f, s:f}", "path", path, "write_mb_s",
					     clair_curve_rate(&class.write, 1) / 1e6,
					     "read_mb_s",
					     clair_curve_rate(&class.read, 1) / 1e6));
		if (i == 0) /* the model knows one class: the fastest */
			c->model.cache = class;
	}
	return CLI_OK;
}

static void print(const struct calibration *c, bool as_json)
{
	const struct clair_curve *pfs = &c->model.pfs;
	double ram = clair_curve_rate(&c->model.ram.read, 1) / 1e6;
	json_t *points = json_array(), *cache;
	size_t i;

	for (uint32_t k = 0; k < pfs->count; k++)
		json_array_append_new(points, json_pack("{s:f, s:f}", "readers",
							pfs->at[k].clients, "mb_s",
							pfs->at[k].rate / 1e6));
	if (as_json) {
		json_t *o = json_pack("{s:o, s:f, s:O}", "pfs", points, "ram_mb_s", ram,
				      "caches", c->caches);
		json_dumpf(o, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(o);
		return;
	}
	json_decref(points);
	for (uint32_t k = 0; k < pfs->count; k++)
		printf("source, %2.0f readers: %8.1f MB/s\n", pfs->at[k].clients,
		       pfs->at[k].rate / 1e6);
	printf("memory:             %8.1f MB/s\n", ram);
	json_array_foreach(c->caches, i, cache)
		printf("%s: write %.1f MB/s, read %.1f MB/s\n",
		       json_string_value(json_object_get(cache, "path")),
		       json_real_value(json_object_get(cache, "write_mb_s")),
		       json_real_value(json_object_get(cache, "read_mb_s")));
}

static int calibrate(struct cli *cli, bool as_json)
{
	struct calibration c = { .caches = json_array() };
	autofree char *absolute = NULL;
	char file[4096];

	int status = measure_source(cli, &c, &absolute);
	if (status == CLI_OK)
		status = measure_folders(&cli->options, &c);
	double memory = clair_calibrate_memory();
	if (memory > 0)
		clair_curve_set(&c.model.ram.read, 1, memory);
	if (status == CLI_OK) {
		print(&c, as_json);
		int r = clair_calibrate_path(absolute, true, file, sizeof file);
		if (r == 0)
			r = clair_calibrate_save(file, &c.model);
		if (r < 0)
			status = cli_failure("the measurements cannot be kept: %s",
					     strerror(-r));
	}
	json_decref(c.caches);
	return status;
}

int cmd_calibrate(int argc, char **argv)
{
	bool as_json = false;
	const struct cli_flag flags[] = {
		{ "json", NULL, "as JSON", NULL, &as_json },
		{ NULL },
	};
	const struct cli_spec spec = {
		.verb = "calibrate",
		.usage = "SOURCE [-o OPTIONS] [--json]",
		.help = "Measures the bandwidth of SOURCE (with 1, 2, 4 … 32 readers, a second "
			"each), of memory\nand of the cache folders in OPTIONS, and keeps it for "
			"the mounts of this host.",
		.flags = flags,
		.least = 1,
		.most = 1,
	};
	struct cli cli;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	status = calibrate(&cli, as_json);
	cli_finish(&cli);
	return status;
}
