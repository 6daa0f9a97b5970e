/* SPDX-License-Identifier: BSD-3-Clause */
/* huge_job [SAMPLES [RANKS [NODES]]]: one node of a very large job: a catalog that is made up, the
 * stage, the placement; nothing is fetched. Prints what it takes in memory a sample, and the seconds
 * of the placement. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "catalog_internal.h"
#include "clock.h"
#include "stage.h"

#define FOLDERS 1000u

static double resident_mb(const char *key)
{
	char line[256];
	double kb = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, key, strlen(key)))
			kb = strtod(line + strlen(key) + 1, NULL);
	if (f)
		fclose(f);
	return kb / 1e3;
}

/* FOLDERS class folders with FILES files in all, named as ImageNet's. */
static struct clair_catalog *make_catalog(uint32_t files)
{
	struct clair_catalog *c = calloc(1, sizeof *c);
	uint32_t count = 1 + FOLDERS + files, id = 1 + FOLDERS;
	size_t at = 1;

	c->entries = calloc(count, sizeof *c->entries);
	c->sorted = malloc(count * sizeof *c->sorted);
	c->owners = calloc(1, sizeof *c->owners);
	c->names = malloc(1 + 10 * FOLDERS + 21ull * files);
	c->count = count;
	c->owner_count = 1;
	c->names[0] = '\0';
	c->entries[0] = (struct clair_entry){ .first = 1, .count = FOLDERS, .mode = 0755 };
	for (uint32_t f = 0; f < FOLDERS; f++) {
		uint32_t n = files / FOLDERS + (f < files % FOLDERS);
		struct clair_entry *e = &c->entries[1 + f];

		*e = (struct clair_entry){ .name = (uint32_t)at, .first = id, .count = n,
					   .mode = 0755 };
		at += (size_t)sprintf(c->names + at, "n%08u", f) + 1;
		for (uint32_t k = 0; k < n; k++, id++) {
			c->entries[id] = (struct clair_entry){
				.size = 50000 + (id * 2654435761u >> 16), .parent = 1 + f,
				.name = (uint32_t)at, .count = 1, .mode = 0644, .kind = CLAIR_FILE
			};
			at += (size_t)sprintf(c->names + at, "n%08u_%05u.JPEG", f, k) + 1;
		}
	}
	c->names_size = at;
	if (clair_catalog_complete(c, true) < 0)
		abort();
	return c;
}

static int drop_frame(void *self, const struct clair_link_frame *f, const void *small, int fd)
{
	(void)self, (void)f, (void)small, (void)fd;
	return 0;
}

static struct clair_placement *place(struct clair_stage *stage,
				     const struct clair_catalog *catalog, uint32_t ranks,
				     uint32_t nodes, uint32_t self)
{
	struct clair_placement_node *room = calloc(nodes, sizeof *room);
	uint16_t *of_rank = malloc(ranks * sizeof *of_rank);
	const uint16_t *list[1] = { of_rank };
	struct clair_stream **streams;
	struct clair_placement *placement = NULL;
	size_t count;

	for (uint32_t i = 0; i < nodes; i++)
		room[i].ram = clair_catalog_bytes(catalog) / nodes * 12 / 10;
	for (uint32_t r = 0; r < ranks; r++)
		of_rank[r] = (uint16_t)(r * nodes / ranks);
	if (clair_stage_streams(stage, &streams, &count) < 0)
		abort();
	struct clair_placement_input input = {
		.catalog = catalog, .nodes = room, .node_count = nodes, .self = self,
		.streams = streams, .stream_count = count, .node_of_rank = list, .epochs = 8,
	};
	int64_t begun = clair_now_ns();
	clock_t cpu = clock();
	int r = clair_policy_find("clairfs")->place(&input, &placement);
	printf("placement: %d, %.1f s, of that CPU %.1f s\n", r,
	       (double)(clair_now_ns() - begun) / 1e9, (double)(clock() - cpu) / CLOCKS_PER_SEC);
	free(streams);
	free(of_rank);
	free(room);
	return placement;
}

int main(int argc, char **argv)
{
	uint32_t files = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 14197122;
	uint32_t ranks = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1024;
	uint32_t nodes = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 256;
	uint32_t each = ranks / nodes, self = nodes / 2;
	struct clair_catalog *catalog = make_catalog(files);
	struct clair_stats stats = { 0 };
	struct clair_source *source = NULL;
	struct clair_kernel kernel = { 0 };
	struct clair_stage *stage = NULL;
	struct clair_stream *stream = NULL;
	struct clair_words words = { 0 };
	char text[64], *error = NULL;
	double paths = (double)catalog->names_size / 1e6;

	if (clair_source_new(open("/", O_PATH | O_CLOEXEC), catalog, &stats, &source) < 0)
		return 1;
	struct clair_stage_config config = { .catalog = catalog, .source = source,
					     .kernel = &kernel, .stats = &stats,
					     .ram = 1 << 30, .staging = 64 << 20,
					     .keep = CLAIR_KEEP_ARENA };
	clair_words_set(&words, "seed", "42");
	clair_words_set(&words, "sampler", "torch-distributed");
	clair_words_set(&words, "index", "imagefolder");
	snprintf(text, sizeof text, "%u", ranks);
	clair_words_set(&words, "world", text);
	snprintf(text, sizeof text, "%u-%u", self * each, self * each + each - 1);
	clair_words_set(&words, "ranks", text);
	int r = clair_stage_new(&config, &stage);
	if (r == 0)
		r = clair_stream_new(catalog, 0, &words, &stream, &error);
	if (r == 0)
		r = clair_stage_set_stream(stage, stream);
	if (r < 0) {
		fprintf(stderr, "%s\n", error ? error : strerror(-r));
		return 1;
	}
	printf("%u samples, %u ranks, %u nodes; paths %.0f MB\n", files, ranks, nodes, paths);
	printf("catalog and stage: resident %.0f MB\n", resident_mb("VmRSS:"));
	struct clair_placement *placement = place(stage, catalog, ranks, nodes, self);
	struct clair_transport nowhere = { NULL, drop_frame };
	struct clair_peers *peers = NULL;
	struct clair_link_frame hello = { .version = CLAIR_LINK_VERSION, .kind = CLAIR_LINK_HELLO,
					  .node = self, .token = nodes };
	if (!placement || clair_peers_new(&nowhere, &stats, &peers) < 0)
		return 1;
	clair_peers_frame(peers, &hello, NULL, -1);
	r = clair_stage_set_peers(stage, peers, placement);
	double now = resident_mb("VmRSS:"), most = resident_mb("VmHWM:");
	printf("with peers (%d): resident %.0f MB, %.1f B a sample beside the paths; the most %.0f MB, "
	       "%.1f B\n",
	       r, now, (now - paths) * 1e6 / files, most, (most - paths) * 1e6 / files);
	printf("allowed: %.0f MB (64 MiB + 64 B a sample + paths)\n",
	       67.1 + 64.0 * files / 1e6 + paths);
	return 0;
}
