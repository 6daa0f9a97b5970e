/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "peer_internal.h"

/* MPI operations in flight: one array for MPI_Testsome, and beside it what each is. */

static int grow(struct peer *p)
{
	int slots = p->op_slots ? 2 * p->op_slots : 256;
	size_t n = (size_t)slots;
	void *a = realloc(p->requests, n * sizeof *p->requests);
	if (a)
		p->requests = a;
	void *b = realloc(p->ops, n * sizeof *p->ops);
	if (b)
		p->ops = b;
	void *c = realloc(p->indices, n * sizeof *p->indices);
	if (c)
		p->indices = c;
	void *d = realloc(p->statuses, n * sizeof *p->statuses);
	if (d)
		p->statuses = d;
	if (!a || !b || !c || !d)
		return -ENOMEM;
	p->op_slots = slots;
	return 0;
}

int peer_ops_add(struct peer *p, struct peer_op op, MPI_Request request)
{
	if (p->op_count == p->op_slots && grow(p) < 0)
		return -ENOMEM;
	p->requests[p->op_count] = request;
	p->ops[p->op_count++] = op;
	return 0;
}

static void count_less(struct peer *p, const struct peer_op *op)
{
	switch (op->kind) {
	case PEER_OP_BATCH:
		op->node->batches--;
		break;
	case PEER_OP_SEND:
		if (op->items->bulk)
			op->node->bulk_sends--;
		else
			op->node->sends--;
		break;
	case PEER_OP_DATA:
		op->node->receives--;
		p->receives--;
		break;
	case PEER_OP_HEAD:
		break;
	}
}

static void free_items(struct peer *p, struct peer_item *item, bool dead)
{
	while (item) {
		struct peer_item *next = item->next;
		if (item->tell)
			peer_tell_sent(p, item->token, dead);
		peer_item_free(p, item);
		item = next;
	}
}

static void op_done(struct peer *p, struct peer_op *op)
{
	struct peer_node *n = op->node;

	count_less(p, op);
	switch (op->kind) {
	case PEER_OP_BATCH:
		free(op->buffer);
		free_items(p, op->items, n->down);
		break;
	case PEER_OP_SEND:
		free_items(p, op->items, n->down);
		break;
	case PEER_OP_HEAD:
		op->head->done = true;
		break;
	case PEER_OP_DATA:
		peer_region_drop(p, op->region);
		peer_data_done(p, n, op->in);
		break;
	}
}

int peer_ops_test(struct peer *p)
{
	int done = 0;

	if (!p->op_count)
		return 0;
	int r = MPI_Testsome(p->op_count, p->requests, &done, p->indices, p->statuses);
	if (done == MPI_UNDEFINED || done <= 0)
		return 0;
	/* In the order in which they were begun, whatever order MPI lists them in. */
	for (int i = 0; i < done; i++) {
		struct peer_op *op = &p->ops[p->indices[i]];
		int error = r == MPI_ERR_IN_STATUS ? p->statuses[i].MPI_ERROR : MPI_SUCCESS;

		if (error == MPI_SUCCESS || error == MPI_ERR_PENDING)
			continue;
		if (op->kind == PEER_OP_DATA)
			op->in->lost = true;
		if (error != MPI_ERR_TRUNCATE)
			peer_doom(p, op->node, "an MPI operation failed");
		/* MPI leaves what failed in the array. */
		if (p->requests[p->indices[i]] != MPI_REQUEST_NULL)
			MPI_Request_free(&p->requests[p->indices[i]]);
		p->requests[p->indices[i]] = MPI_REQUEST_NULL;
	}
	/* What an op does when it ends may begin new ones at the end of the array. */
	int before = p->op_count;
	for (int i = 0; i < before; i++)
		if (p->requests[i] == MPI_REQUEST_NULL) {
			struct peer_op op = p->ops[i];
			p->ops[i].node = NULL;
			op_done(p, &op);
		}
	int kept = 0;
	for (int i = 0; i < p->op_count; i++)
		if (p->ops[i].node) {
			p->requests[kept] = p->requests[i];
			p->ops[kept++] = p->ops[i];
		}
	p->op_count = kept;
	return done;
}

/* A receive that nothing matched can be taken back; true when it was. */
static bool taken_back(MPI_Request *request)
{
	int done = 0, cancelled = 0;
	MPI_Status status;

	if (MPI_Cancel(request) != MPI_SUCCESS ||
	    MPI_Test(request, &done, &status) != MPI_SUCCESS || !done)
		return false;
	MPI_Test_cancelled(&status, &cancelled);
	return true; /* cancelled or ended: MPI is done with the memory */
}

static void abandon(struct peer *p, struct peer_op *op, MPI_Request request)
{
	count_less(p, op);
	switch (op->kind) {
	case PEER_OP_BATCH: /* the buffer is MPI's for ever */
	case PEER_OP_SEND:
		free_items(p, op->items, true);
		MPI_Request_free(&request);
		break;
	case PEER_OP_HEAD:
		op->node->heads = NULL; /* leaked, as all behind it */
		op->node->heads_last = &op->node->heads;
		MPI_Request_free(&request);
		break;
	case PEER_OP_DATA:
		if (taken_back(&request)) {
			if (op->in->landing)
				peer_landing_back(p, op->in->landing);
		} else {
			if (op->in->landing)
				peer_landing_stuck(p, op->in->landing);
			op->in->scratch = NULL;
			MPI_Request_free(&request);
		}
		peer_region_drop(p, op->region);
		break;
	}
}

void peer_ops_abandon(struct peer *p, struct peer_node *n)
{
	int kept = 0;

	for (int i = 0; i < p->op_count; i++)
		if (p->ops[i].node == n)
			abandon(p, &p->ops[i], p->requests[i]);
		else {
			p->requests[kept] = p->requests[i];
			p->ops[kept++] = p->ops[i];
		}
	p->op_count = kept;
}
