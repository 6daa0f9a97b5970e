/* SPDX-License-Identifier: BSD-3-Clause */
/* rogue SECONDS: an MPI rank among peer processes that says garbage to them: batches that are
 * cut off, of random bytes, with right heads and wrong entries, parts of bulks that cannot
 * be, payloads that nobody announced. Answers nothing. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "peer_internal.h"

static uint64_t state = 88172645463325252ull;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void random_bytes(char *at, size_t size)
{
	for (size_t i = 0; i < size; i++)
		at[i] = (char)next();
}

static size_t put_entry(char *at, int count)
{
	struct peer_entry e = { .kind = (uint16_t)(next() % 7),
				.small = (uint32_t)(next() % 4 ? next() % 64 : next()),
				.length = next() % 3 ? 0 : next() >> (next() % 64),
				.key = next() % 1000 };
	struct peer_bulk_head h = { .root = (uint32_t)(next() % (unsigned)(count + 2)),
				    .id = (uint32_t)(next() % 3),
				    .total = next() % 2 ? next() >> (next() % 64)
							: next() % 100000,
				    .offset = next() % 2 ? next() >> (next() % 64) : 0 };

	/* What would end the job, or us, is not garbage. */
	if (e.kind == PEER_DOWN || e.kind == PEER_BYE)
		e.small = 5;
	if (e.kind == PEER_CHUNK || e.kind == PEER_DONE) {
		e.small = sizeof h;
		memcpy(at + sizeof e, &h, sizeof h);
	}
	memcpy(at, &e, sizeof e);
	return sizeof e + (e.small < 64 ? (e.small + 7) & ~7u : 8);
}

static size_t make(char *at, int count)
{
	struct peer_batch head = { .magic = PEER_MAGIC,
				   .flags = (uint16_t)next(),
				   .entries = (uint16_t)(next() % 8 ? next() % 20 : next()),
				   .taken = next() >> (next() % 64) };
	size_t size = sizeof head;

	random_bytes(at, 4096);
	if (next() % 8 == 0)
		return next() % 4096;
	memcpy(at, &head, sizeof head);
	for (int i = 0; i < 20; i++)
		size += put_entry(at + size, count);
	return next() % 4 ? size : next() % size;
}

int main(int argc, char **argv)
{
	static char buffer[2 * PEER_BATCH];
	struct peer_card card = { .magic = PEER_MAGIC, .secret = 1, .port = 9 }, *cards;
	int rank, count;
	MPI_Comm comm;

	MPI_Init(&argc, &argv);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &count);
	cards = calloc((size_t)count, sizeof *cards);
	if (!cards || argc < 2)
		MPI_Abort(comm, 2);
	MPI_Allgather(&card, sizeof card, MPI_BYTE, cards, sizeof card, MPI_BYTE, comm);
	int64_t end = clair_now_ns() + atoi(argv[1]) * CLAIR_NS_PER_S;
	for (uint64_t i = 0; i < 20000 && clair_now_ns() < end; i++) {
		MPI_Request r;
		int to = (int)(next() % (unsigned)count), done = 0;
		if (to == rank)
			continue;
		size_t size = make(buffer, count);
		if (next() % 64 == 0)
			size = sizeof buffer; /* larger than any batch */
		MPI_Isend(buffer, (int)size, MPI_BYTE, to,
			  next() % 8 ? PEER_TAG_HEAD : PEER_TAG_DATA, comm, &r);
		/* What nobody receives is left alone. */
		for (int k = 0; k < 20 && !done; k++)
			MPI_Test(&r, &done, MPI_STATUS_IGNORE);
		if (i % 64 == 0)
			usleep(500);
	}
	while (clair_now_ns() < end)
		usleep(10000);
	_exit(0);
}
