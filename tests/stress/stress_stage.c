/* SPDX-License-Identifier: BSD-3-Clause */
/* Several readers, lost pages, replaced streams and questions at once, for a few seconds;
 * every byte is compared. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "stage_world.h"

#define READERS 4
#define RUN_NS (2 * CLAIR_NS_PER_S)

static const char *const words[] = { "seed", "42", "sampler", "torch-distributed",
				     "index", "sorted", NULL };
static struct world w;
static struct clair_epoch *order;
static atomic_uint next;
static atomic_bool over, wrong;

static void *reader(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		uint32_t i = atomic_fetch_add(&next, 1);
		if (!world_read(&w, order->ids[i % order->count], true))
			atomic_store(&wrong, true);
	}
	return NULL;
}

static void *disturber(void *arg)
{
	unsigned seed = 1;

	(void)arg;
	while (!atomic_load(&over)) {
		uint32_t id = order->ids[(unsigned)rand_r(&seed) % order->count];

		usleep(2000);
		world_lose(&w, id);
		if (rand_r(&seed) % 4 == 0)
			clair_stage_forgot(w.stage, id);
		if (rand_r(&seed) % 40 == 0)
			world_set_stream(&w, words);
		if (rand_r(&seed) % 40 == 0)
			clair_stage_set_epoch(w.stage, w.folder_id, 0);
		clair_stage_where(w.stage, id);
		json_t *o = json_object();
		clair_stage_json(w.stage, o);
		json_decref(o);
	}
	return NULL;
}

static void run(enum clair_keep keep)
{
	struct world_config c = { .files = 150, .size = 50000, .large = 9 << 20,
				  .ram = 2 << 20, .staging = 12 << 20, .keep = keep };
	pthread_t threads[READERS + 1];

	for (size_t i = 0; words[i]; i++)
		c.words[i] = words[i];
	world_begin(&w, &c);
	order = world_order(&w, words, 0, 0);
	atomic_store(&next, 0);
	atomic_store(&over, false);
	if (clair_stage_start(w.stage) < 0)
		abort();
	for (size_t i = 0; i < READERS; i++)
		pthread_create(&threads[i], NULL, reader, NULL);
	pthread_create(&threads[READERS], NULL, disturber, NULL);
	int64_t end = clair_now_ns() + RUN_NS;
	while (clair_now_ns() < end)
		usleep(10000);
	atomic_store(&over, true);
	for (size_t i = 0; i <= READERS; i++)
		pthread_join(threads[i], NULL);
	printf("%u files read\n", atomic_load(&next));
	clair_epoch_put(order);
	world_end(&w);
}

int main(void)
{
	run(CLAIR_KEEP_KERNEL);
	run(CLAIR_KEEP_ARENA);
	if (atomic_load(&wrong))
		puts("wrong bytes");
	return atomic_load(&wrong);
}
