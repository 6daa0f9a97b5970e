/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "finder.h"
#include "job.h"
#include "mount.h"

static json_t *process_json(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		     (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	return json_pack("{s:i, s:f, s:I}", "pid", (int)getpid(), "cpu_s", cpu,
			 "rss_peak_bytes", (json_int_t)usage.ru_maxrss * 1024);
}

json_t *clair_report_json(struct clair_mount *m)
{
	uint64_t capacity, dataset, epochs, samples = 0;
	json_t *report;

	clair_stage_bound(m->stage, &capacity, &dataset, &epochs);
	capacity = clair_job_capacity(m->job, capacity);
	for (uint32_t id = 0; id < clair_catalog_count(m->catalog); id++)
		samples += clair_catalog_entry(m->catalog, id)->kind == CLAIR_FILE;
	report = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:[], s:o}", "version",
			   CLAIR_VERSION, "source", m->source_path, "mountpoint",
			   m->mountpoint, "samples", (json_int_t)samples, "bytes",
			   (json_int_t)clair_catalog_bytes(m->catalog), "pfs_bound_bytes",
			   (json_int_t)clair_pfs_bound(dataset, capacity, epochs), "peers",
			   "process", process_json());
	if (report && (clair_stage_json(m->stage, report) < 0 ||
		       clair_stats_json(&m->stats, report) < 0 ||
		       clair_job_json(m->job, report) < 0)) {
		json_decref(report);
		return NULL;
	}
	json_t *finder = clair_finder_json(m->finder);
	if (report && finder)
		json_object_set_new(report, "discovery", finder);
	return report;
}

json_t *clair_report_short(struct clair_mount *m)
{
	json_t *report = clair_report_json(m), *stream;
	size_t i;

	json_object_del(report, "peers");
	json_object_del(report, "discovery");
	json_array_foreach(json_object_get(report, "streams"), i, stream)
	{
		json_t *epochs = json_object_get(stream, "epochs");
		while (json_array_size(epochs) > 8)
			json_array_remove(epochs, 0);
	}
	return report;
}

/* Leaves out the oldest epoch of the longest list; false when there is none. */
static bool cut_epochs(json_t *report)
{
	json_t *streams = json_object_get(report, "streams"), *stream, *longest = NULL;
	size_t i;

	json_array_foreach(streams, i, stream)
	{
		json_t *epochs = json_object_get(stream, "epochs");
		if (json_array_size(epochs) > json_array_size(longest))
			longest = epochs;
	}
	if (json_array_size(longest) < 2)
		return false;
	json_array_remove(longest, 0);
	return true;
}

char *clair_report_text(struct clair_mount *m, size_t size)
{
	json_t *report = clair_report_json(m);
	char *text = report ? json_dumps(report, JSON_COMPACT) : NULL;

	while (text && strlen(text) > size && cut_epochs(report)) {
		free(text);
		text = json_dumps(report, JSON_COMPACT);
	}
	json_decref(report);
	return text;
}

/* --- for people ------------------------------------------------------------------------- */

static json_int_t number(const json_t *object, const char *a, const char *b)
{
	const json_t *value = json_object_get(object, a);

	if (b)
		value = json_object_get(value, b);
	return json_integer_value(value);
}

static void print_epochs(const json_t *epochs, FILE *f)
{
	size_t count = json_array_size(epochs), first = count > 12 ? count - 12 : 0;

	if (count)
		fprintf(f, "    epoch    opens     staged    late  missed  unpred.   MB/s   "
			   "stall s\n");
	for (size_t i = first; i < count; i++) {
		const json_t *e = json_array_get(epochs, i);
		double seconds = json_real_value(json_object_get(e, "seconds"));
		fprintf(f,
			"    %5lld %8lld %10lld %7lld %7lld %8lld %6.0f %9.3f\n",
			(long long)number(e, "epoch", NULL),
			(long long)number(e, "opens", NULL),
			(long long)number(e, "staged", NULL),
			(long long)number(e, "late", NULL),
			(long long)number(e, "missed", NULL),
			(long long)number(e, "unpredicted", NULL),
			seconds > 0 ? (double)number(e, "bytes", NULL) / 1e6 / seconds : 0,
			json_real_value(json_object_get(e, "stall_s")));
	}
}

static void print_order(const json_t *stream, FILE *f)
{
	const json_t *order = json_object_get(stream, "order");
	const char *path = json_string_value(json_object_get(stream, "path"));
	const char *how = json_string_value(json_object_get(order, "how"));

	fprintf(f, "  %s: order %s", path && *path ? path : ".", how ? how : "unknown");
	if (how && strcmp(how, "unknown")) {
		const json_t *seed = json_object_get(order, "seed");
		fprintf(f, ": %s over %s",
			json_string_value(json_object_get(order, "sampler")),
			json_string_value(json_object_get(order, "index")));
		if (seed)
			fprintf(f, ", seed %lld", (long long)json_integer_value(seed));
		fprintf(f, ", world %lld", (long long)number(order, "world", NULL));
		if (json_is_false(json_object_get(order, "trusted")))
			fprintf(f, "; THE OPENS DO NOT FOLLOW IT");
	}
	if (json_object_get(order, "opens_to_find"))
		fprintf(f, " (after %lld opens, %.1f s)",
			(long long)number(order, "opens_to_find", NULL),
			json_real_value(json_object_get(order, "seconds_to_find")));
	fprintf(f, "\n");
}

static void print_peers(const json_t *r, FILE *f)
{
	json_t *peer;
	size_t i;

	json_array_foreach(json_object_get(r, "peers"), i, peer)
	{
		const char *host = json_string_value(json_object_get(peer, "host"));
		const char *state = json_string_value(json_object_get(peer, "state"));

		if (i == 16) {
			fprintf(f, "  … and %zu nodes more\n",
				json_array_size(json_object_get(r, "peers")) - i);
			break;
		}
		fprintf(f,
			"  node %lld %s (%s): keeps %.1f MB; %.1f MB from it, %.1f MB to it, "
			"answers within %.1f ms (half), %.1f ms (99 %%)\n",
			(long long)number(peer, "node", NULL), host ? host : "",
			state ? state : "",
			(double)(number(peer, "ram", NULL) + number(peer, "cache", NULL)) / 1e6,
			(double)number(peer, "bytes_in", NULL) / 1e6,
			(double)number(peer, "bytes_out", NULL) / 1e6,
			(double)number(peer, "latency_p50_us", NULL) / 1e3,
			(double)number(peer, "latency_p99_us", NULL) / 1e3);
	}
	const json_t *job = json_object_get(r, "job");
	if (job)
		fprintf(f,
			"  the job's %zu nodes: %.1f MB from the source (lower bound %.1f MB), in "
			"%lld opens; it was listed %lld times\n",
			json_array_size(json_object_get(job, "nodes")),
			(double)number(job, "pfs_bytes", NULL) / 1e6,
			(double)number(r, "pfs_bound_bytes", NULL) / 1e6,
			(long long)number(job, "pfs_opens", NULL),
			(long long)number(job, "pfs_walks", NULL));
}

void clair_report_print(const json_t *r, FILE *f)
{
	json_t *stream;
	size_t i;
	double bound = (double)number(r, "pfs_bound_bytes", NULL);
	const json_t *reads = json_object_get(r, "reads");

	fprintf(f, "clairfs: %s: %lld files, %.1f MB\n",
		json_string_value(json_object_get(r, "source")),
		(long long)number(r, "samples", NULL), (double)number(r, "bytes", NULL) / 1e6);
	json_array_foreach(json_object_get(r, "streams"), i, stream)
	{
		print_order(stream, f);
		print_epochs(json_object_get(stream, "epochs"), f);
	}
	fprintf(f, "  read from the source: %.1f MB", (double)number(reads, "pfs", "bytes") / 1e6);
	if (bound > 0)
		fprintf(f, " (lower bound %.1f MB)", bound / 1e6);
	fprintf(f, ", in %lld opens; from RAM %.1f MB, directories %.1f MB\n",
		(long long)number(r, "pfs", "opens"),
		(double)number(reads, "ram", "bytes") / 1e6,
		(double)number(reads, "cache", "bytes") / 1e6);
	print_peers(r, f);
	if (number(r, "errors", "hash") || number(r, "errors", "cache") ||
	    number(r, "errors", "reader") || number(r, "pfs", "errors"))
		fprintf(f,
			"  errors: source %lld, checksums %lld, directories %lld, told to "
			"readers %lld\n",
			(long long)number(r, "pfs", "errors"),
			(long long)number(r, "errors", "hash"),
			(long long)number(r, "errors", "cache"),
			(long long)number(r, "errors", "reader"));
}
