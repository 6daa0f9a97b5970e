/* SPDX-License-Identifier: BSD-3-Clause */
#include "slowfs_model.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A line of time on which one thing is done after the other: when it is free again. After a
 * pause it may be this much behind, so that late wake-ups do not cost bandwidth. */
#define CREDIT_NS 2000000
#define POINTS 16
#define BUCKETS 65536u

struct rule {
	struct rule *next;
	struct slow_verdict verdict;
	int op; /* -1: any */
	char glob[512];
	uint64_t from, count, seen;
};

struct file {
	struct file *next;
	uint64_t opens, reads, bytes;
	char path[];
};

static const char *const op_names[SLOW_OPS] = { "getattr", "readlink", "readdir",
						"open",    "read",     "xattr" };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static int64_t latency_ns, metadata_ns; /* metadata: a call's share of the line */
static struct {
	double clients, bytes_s;
} table[POINTS];
static unsigned points;
static int64_t data_free_ns, metadata_free_ns;
static unsigned reading, reading_most;
static struct rule *rules;
static uint64_t generation; /* of the rules: hanging calls wait for the next one */
static bool stopping;
static struct file *files[BUCKETS];
static uint64_t ops[SLOW_OPS], bytes_read, faults;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void sleep_until(int64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	if (ns > now_ns())
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
			;
}

static double number(const char *text, char **end)
{
	double v = strtod(text, end);

	switch (**end) {
	case 'k': v *= 1e3; break;
	case 'M': v *= 1e6; break;
	case 'G': v *= 1e9; break;
	default: return v;
	}
	(*end)++;
	return v;
}

static int set_bandwidth(const char *text)
{
	typeof(table) t = { 0 };
	unsigned n = 0;
	char *end;

	for (const char *at = text; *at && n < POINTS; n++) {
		double v = number(at, &end);

		t[n].clients = 1;
		if (*end == ':') {
			t[n].clients = v;
			v = number(end + 1, &end);
		}
		t[n].bytes_s = v;
		if ((*end && *end != ',') || v < 0 || end == at)
			return -EINVAL;
		at = *end ? end + 1 : end;
	}
	memcpy(table, t, sizeof table);
	points = n == 1 && t[0].bytes_s <= 0 ? 0 : n;
	return 0;
}

int slow_set(const char *key, const char *value)
{
	int r = 0;
	char *end;

	pthread_mutex_lock(&lock);
	if (!strcmp(key, "latency"))
		latency_ns = (int64_t)(strtod(value, &end) * 1e3);
	else if (!strcmp(key, "metadata"))
		metadata_ns = strtod(value, &end) > 0 ? (int64_t)(1e9 / strtod(value, &end)) : 0;
	else if (!strcmp(key, "bandwidth"))
		r = set_bandwidth(value);
	else
		r = -EINVAL;
	pthread_mutex_unlock(&lock);
	return r;
}

/* t(clients), linear between the table's points; 0: no limit. Under the lock. */
static double bandwidth(unsigned clients)
{
	if (!points)
		return 0;
	if (clients <= table[0].clients)
		return table[0].bytes_s;
	for (unsigned i = 1; i < points; i++) {
		if (clients > table[i].clients)
			continue;
		double part = (clients - table[i - 1].clients) /
			      (table[i].clients - table[i - 1].clients);
		return table[i - 1].bytes_s + part * (table[i].bytes_s - table[i - 1].bytes_s);
	}
	return table[points - 1].bytes_s;
}

/* Takes COST of the line that is free at *FREE; when that is done. Under the lock. */
static int64_t line_take(int64_t *free_ns, int64_t now, int64_t cost)
{
	if (*free_ns < now - CREDIT_NS)
		*free_ns = now - CREDIT_NS;
	*free_ns += cost;
	return *free_ns;
}

static int parse_kind(struct rule *rule, const char *kind)
{
	static const struct {
		const char *name;
		enum slow_fault fault;
		int value;
	} kinds[] = { { "eio", SLOW_ERRNO, EIO },  { "estale", SLOW_ERRNO, ESTALE },
		      { "errno", SLOW_ERRNO, 0 },  { "hang", SLOW_HANG, 15000 },
		      { "short", SLOW_SHORT, 0 },  { "delay", SLOW_DELAY, 0 },
		      { "garble", SLOW_GARBLE, 0 } };
	size_t n = strcspn(kind, ":");

	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		if (strlen(kinds[i].name) != n || strncmp(kind, kinds[i].name, n))
			continue;
		rule->verdict.fault = kinds[i].fault;
		rule->verdict.value = kind[n] ? atoi(kind + n + 1) : kinds[i].value;
		return 0;
	}
	return -EINVAL;
}

static int parse_word(struct rule *rule, const char *word)
{
	if (!strncmp(word, "path=", 5)) {
		snprintf(rule->glob, sizeof rule->glob, "%s", word + 5);
	} else if (!strncmp(word, "from=", 5)) {
		rule->from = strtoull(word + 5, NULL, 10);
	} else if (!strncmp(word, "count=", 6)) {
		rule->count = strtoull(word + 6, NULL, 10);
	} else if (!strncmp(word, "op=", 3)) {
		for (int i = 0; i < SLOW_OPS; i++)
			if (!strcmp(word + 3, op_names[i]))
				rule->op = i;
		if (rule->op < 0 && strcmp(word + 3, "any"))
			return -EINVAL;
	} else {
		return -EINVAL;
	}
	return 0;
}

int slow_fault_add(const char *text)
{
	char copy[1024], *at = NULL;
	struct rule *rule = calloc(1, sizeof *rule);

	if (!rule)
		return -ENOMEM;
	rule->op = -1;
	rule->from = 1;
	rule->count = UINT64_MAX;
	snprintf(copy, sizeof copy, "%s", text);
	char *word = strtok_r(copy, " \t", &at);
	int r = word ? parse_kind(rule, word) : -EINVAL;
	while (!r && (word = strtok_r(NULL, " \t", &at)))
		r = parse_word(rule, word);
	if (r < 0) {
		free(rule);
		return r;
	}
	pthread_mutex_lock(&lock);
	rule->next = rules;
	rules = rule;
	pthread_mutex_unlock(&lock);
	return 0;
}

static void release(bool stop)
{
	pthread_mutex_lock(&lock);
	for (struct rule *r = rules, *next; r; r = next) {
		next = r->next;
		free(r);
	}
	rules = NULL;
	generation++;
	stopping |= stop;
	pthread_cond_broadcast(&released);
	pthread_mutex_unlock(&lock);
}

void slow_fault_clear(void)
{
	release(false);
}

void slow_stop(void)
{
	release(true);
}

/* Under the lock. */
static struct slow_verdict judge(enum slow_op op, const char *path)
{
	struct slow_verdict none = { SLOW_NONE, 0 };

	for (struct rule *r = rules; r; r = r->next) {
		if ((r->op >= 0 && r->op != (int)op) ||
		    (r->glob[0] && fnmatch(r->glob, path, 0)))
			continue;
		r->seen++;
		if (r->seen >= r->from && r->seen - r->from < r->count) {
			faults++;
			return r->verdict;
		}
	}
	return none;
}

static uint32_t hash_path(const char *path)
{
	uint32_t h = 2166136261u;

	for (; *path; path++)
		h = (h ^ (unsigned char)*path) * 16777619u;
	return h;
}

/* Under the lock. NULL without memory. */
static struct file *file_of(const char *path)
{
	struct file **bucket = &files[hash_path(path) % BUCKETS];

	for (struct file *f = *bucket; f; f = f->next)
		if (!strcmp(f->path, path))
			return f;
	struct file *f = calloc(1, sizeof *f + strlen(path) + 1);
	if (!f)
		return NULL;
	strcpy(f->path, path);
	f->next = *bucket;
	*bucket = f;
	return f;
}

struct slow_verdict slow_enter(enum slow_op op, const char *path)
{
	pthread_mutex_lock(&lock);
	int64_t now = now_ns(), until = now + latency_ns;
	struct slow_verdict verdict = judge(op, path);

	ops[op]++;
	if (op == SLOW_OPEN) {
		struct file *f = file_of(path);
		if (f)
			f->opens++;
	}
	if (op != SLOW_READ && metadata_ns) {
		int64_t done = line_take(&metadata_free_ns, now, metadata_ns);
		until = done > until ? done : until;
	}
	uint64_t mine = generation;
	int64_t end = now + verdict.value * INT64_C(1000000);
	struct timespec t = { end / 1000000000, end % 1000000000 };
	while (verdict.fault == SLOW_HANG && mine == generation && !stopping && now_ns() < end)
		pthread_cond_clockwait(&released, &lock, CLOCK_MONOTONIC, &t);
	pthread_mutex_unlock(&lock);

	if (verdict.fault == SLOW_DELAY)
		until += verdict.value * INT64_C(1000000);
	sleep_until(until);
	return verdict;
}

void slow_transfer(const char *path, size_t bytes)
{
	int64_t done = 0;

	pthread_mutex_lock(&lock);
	struct file *f = file_of(path);
	if (f) {
		f->reads++;
		f->bytes += bytes;
	}
	bytes_read += bytes;
	reading++;
	reading_most = reading > reading_most ? reading : reading_most;
	double rate = bandwidth(reading);
	if (rate > 0)
		done = line_take(&data_free_ns, now_ns(), (int64_t)((double)bytes / rate * 1e9));
	pthread_mutex_unlock(&lock);

	sleep_until(done);
	pthread_mutex_lock(&lock);
	reading--;
	pthread_mutex_unlock(&lock);
}

void slow_report(FILE *out)
{
	uint64_t opened = 0, most = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct file *f = files[i]; f; f = f->next) {
			opened += f->opens > 0;
			most = f->opens > most ? f->opens : most;
		}
	}
	fprintf(out, "{ \"bytes\": %llu, \"faults\": %llu, \"files_opened\": %llu, "
		     "\"most_opens_of_a_file\": %llu, \"most_reading\": %u",
		(unsigned long long)bytes_read, (unsigned long long)faults,
		(unsigned long long)opened, (unsigned long long)most, reading_most);
	for (int i = 0; i < SLOW_OPS; i++)
		fprintf(out, ", \"%s\": %llu", op_names[i], (unsigned long long)ops[i]);
	fprintf(out, " }\n");
	pthread_mutex_unlock(&lock);
}

void slow_report_files(FILE *out)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct file *f = files[i]; f; f = f->next)
			fprintf(out, "%llu %llu %llu %s\n", (unsigned long long)f->opens,
				(unsigned long long)f->reads, (unsigned long long)f->bytes,
				f->path + 1);
	pthread_mutex_unlock(&lock);
}

void slow_reset(void)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct file *f = files[i]; f; f = f->next)
			f->opens = f->reads = f->bytes = 0;
	memset(ops, 0, sizeof ops);
	bytes_read = faults = 0;
	reading_most = 0;
	pthread_mutex_unlock(&lock);
}
