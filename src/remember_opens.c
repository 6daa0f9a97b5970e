/* SPDX-License-Identifier: BSD-3-Clause */
#include "remember.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"
#include "index.h"

#define MAGIC "clairop1"

/* Little-endian, as the machines are. Then a count a pass, then the packed passes. */
struct header {
	char magic[8];
	uint64_t check; /* XXH3 of all that follows */
	uint64_t catalog;
	uint64_t bytes; /* of the packed passes */
	uint32_t samples, passes;
};
static_assert(sizeof(struct header) == 40, "on disk");

/* --- saving --------------------------------------------------------------------------------- */

/* By catalog id the sample number in the dataset order of remembered opens. */
static int number_files(const struct clair_catalog *c, uint32_t **out, uint32_t *samples)
{
	autofree uint32_t *ids = NULL;
	char *error = NULL;
	uint32_t all = clair_catalog_count(c);

	int r = clair_index_make(c, 0, CLAIR_REMEMBER_INDEX, &ids, samples, &error);
	free(error);
	if (r < 0)
		return r;
	uint32_t *number = malloc(all * sizeof *number);
	if (!number)
		return -ENOMEM;
	memset(number, 0xff, all * sizeof *number);
	for (uint32_t i = *samples; i-- > 0;)
		number[ids[i]] = i;
	*out = number;
	return 0;
}

static int add_pass(struct clair_opens *to, uint32_t *ids, uint32_t count,
		    const uint32_t *number)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < count; i++)
		if (number[ids[i]] != CLAIR_NO_ID)
			ids[kept++] = number[ids[i]];
	return clair_opens_pack(to, ids, kept);
}

static int renumber(const struct clair_opens *opens, const struct clair_pass *newest,
		    const uint32_t *number, struct clair_opens *to)
{
	const unsigned char *at = opens->packed;
	int r = 0;

	for (size_t i = 0; r == 0 && i < opens->pass_count; i++) {
		uint32_t count = opens->ends[i].count;
		autofree uint32_t *ids = malloc(count * sizeof *ids);

		if (!ids)
			return -ENOMEM;
		bool whole = clair_opens_unpack(&at, opens->packed + opens->ends[i].end, ids,
						count);
		assert(whole);
		r = add_pass(to, ids, count, number);
	}
	if (r == 0 && newest && newest->count) {
		autofree uint32_t *ids = malloc(newest->count * sizeof *ids);

		if (!ids)
			return -ENOMEM;
		memcpy(ids, newest->ids, newest->count * sizeof *ids);
		r = add_pass(to, ids, (uint32_t)newest->count, number);
	}
	return r;
}

static int write_file(const char *file, const void *bytes, size_t size)
{
	autofree char *temporary = NULL;

	if (asprintf(&temporary, "%s.%d", file, (int)getpid()) < 0)
		return -ENOMEM;
	autofclose FILE *f = fopen(temporary, "we");
	if (!f)
		return -errno;
	int r = fwrite(bytes, 1, size, f) == size && fflush(f) == 0 ? 0 : -EIO;
	if (r == 0 && rename(temporary, file) < 0)
		r = -errno;
	if (r < 0)
		unlink(temporary);
	return r;
}

int clair_remember_save_opens(const char *file, const struct clair_opens *opens,
			      const struct clair_pass *newest)
{
	autofree uint32_t *number = NULL;
	struct clair_opens packed = { 0 };
	uint32_t samples = 0;

	int r = number_files(opens->catalog, &number, &samples);
	if (r == 0)
		r = renumber(opens, newest, number, &packed);
	size_t table = packed.pass_count * sizeof(uint32_t);
	size_t size = sizeof(struct header) + table + packed.packed_size;
	autofree unsigned char *bytes = r == 0 ? malloc(size) : NULL;
	if (r == 0 && !bytes)
		r = -ENOMEM;
	if (r == 0) {
		struct header h = { .catalog = clair_catalog_hash(opens->catalog),
				    .bytes = packed.packed_size, .samples = samples,
				    .passes = (uint32_t)packed.pass_count };

		memcpy(h.magic, MAGIC, sizeof h.magic);
		for (size_t i = 0; i < packed.pass_count; i++)
			memcpy(bytes + sizeof h + i * sizeof(uint32_t), &packed.ends[i].count,
			       sizeof(uint32_t));
		if (packed.packed_size)
			memcpy(bytes + sizeof h + table, packed.packed, packed.packed_size);
		memcpy(bytes, &h, sizeof h);
		h.check = XXH3_64bits(bytes + 16, size - 16);
		memcpy(bytes, &h, sizeof h);
		r = write_file(file, bytes, size);
	}
	free(packed.packed);
	free(packed.ends);
	return r;
}

/* --- loading -------------------------------------------------------------------------------- */

static int read_file(const char *file, unsigned char **out, size_t *size)
{
	struct stat st;
	autoclose int fd = open(file, O_RDONLY | O_CLOEXEC);
	size_t done = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct header) ||
	    st.st_size > 2ll * CLAIR_OPENS_LIMIT)
		return -EBADMSG;
	autofree unsigned char *bytes = malloc((size_t)st.st_size);
	if (!bytes)
		return -ENOMEM;
	while (done < (size_t)st.st_size) {
		ssize_t n = read(fd, bytes + done, (size_t)st.st_size - done);
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG;
		done += (size_t)n;
	}
	*out = take_ptr(bytes);
	*size = done;
	return 0;
}

/* Where each pass begins; every number is checked once, here. */
static int find_passes(struct clair_remembered *m, size_t table, size_t size)
{
	const unsigned char *begin = m->bytes, *at = begin + table;

	m->counts = malloc((m->passes + 1ul) * sizeof *m->counts);
	m->begins = malloc((m->passes + 1ul) * sizeof *m->begins);
	if (!m->counts || !m->begins)
		return -ENOMEM;
	memcpy(m->counts, begin + sizeof(struct header), m->passes * sizeof *m->counts);
	for (uint32_t p = 0; p < m->passes; p++) {
		m->begins[p] = (size_t)(at - begin);
		if (m->counts[p] > size)
			return -EBADMSG;
		autofree uint32_t *ids = malloc((m->counts[p] + 1ul) * sizeof *ids);
		if (!ids)
			return -ENOMEM;
		if (!clair_opens_unpack(&at, begin + size, ids, m->counts[p]))
			return -EBADMSG;
		for (uint32_t i = 0; i < m->counts[p]; i++)
			if (ids[i] >= m->samples)
				return -EBADMSG;
		m->opens += m->counts[p];
	}
	m->begins[m->passes] = (size_t)(at - begin);
	return at == begin + size ? 0 : -EBADMSG;
}

int clair_remember_load_opens(const char *file, struct clair_remembered **out)
{
	struct header h;
	unsigned char *bytes = NULL;
	size_t size = 0;

	int r = read_file(file, &bytes, &size);
	if (r < 0)
		return r;
	struct clair_remembered *m = calloc(1, sizeof *m);
	if (!m) {
		free(bytes);
		return -ENOMEM;
	}
	memcpy(&h, bytes, sizeof h);
	m->bytes = bytes;
	m->catalog = h.catalog;
	m->samples = h.samples;
	m->passes = h.passes;
	size_t table = sizeof h + (size_t)h.passes * sizeof(uint32_t);
	if (memcmp(h.magic, MAGIC, sizeof h.magic) || table > size ||
	    h.bytes != size - table || XXH3_64bits(bytes + 16, size - 16) != h.check)
		r = -EBADMSG;
	if (r == 0)
		r = find_passes(m, table, size);
	if (r < 0)
		clair_remembered_free(m);
	else
		*out = m;
	return r;
}

int clair_remembered_pass(const struct clair_remembered *m, uint32_t pass, uint32_t *out)
{
	const unsigned char *at = m->bytes + m->begins[pass];

	return clair_opens_unpack(&at, m->bytes + m->begins[pass + 1], out,
				  m->counts[pass]) ?
		       0 :
		       -EBADMSG;
}

void clair_remembered_free(struct clair_remembered *m)
{
	if (!m)
		return;
	free(m->bytes);
	free(m->counts);
	free(m->begins);
	free(m);
}
