/* Transfers: memory of the process <-> a chunk, through data buffers, a few at a time. */
#include <errno.h>
#include <string.h>

#include "endpoint_internal.h"

#define PIECES_AT_A_TIME 2

static void drive(struct request *request);

/* From here on the request may be over: who sees the last piece end is the last to look at it. */
static void piece_is_over(struct request *request, int error)
{
	struct transfer *transfer = &request->transfer;

	ldma_lock(&request->call.endpoint->lock);
	transfer->under_way--;
	if (error && !transfer->error)
		transfer->error = error;
	drive(request);
}

static void piece_is_there(struct ldma_piece *piece)
{
	struct request *request = request_of(piece->call);
	struct transfer *transfer = &request->transfer;
	uint8_t *memory = transfer->memory + (piece->offset - transfer->from);
	uint64_t left = transfer->length - (piece->offset - transfer->from);
	uint32_t length = piece->length < left ? piece->length : (uint32_t)left;
	int error = piece->error;

	if (error) {
		ldma_piece_drop(piece);
	} else if (transfer->is_pull) {
		memcpy(memory, piece->memory, length);
		ldma_piece_drop(piece);
	} else {
		memcpy(piece->memory, memory, length);
		ldma_piece_push(piece, length);
	}
	piece_is_over(request, error);
}

static int ask(struct request *request, uint64_t offset)
{
	struct transfer *transfer = &request->transfer;
	uint32_t most = request->call.endpoint->config.data_bytes;
	uint64_t left = transfer->length - offset;

	return piece_ask(request, transfer->chunk, transfer->from + offset,
			 left < most ? (uint32_t)left : most, transfer->is_pull, piece_is_there,
			 NULL);
}

/* Whether there is one more piece to ask for; where it is. */
static bool next_piece(struct request *request, uint64_t *ret)
{
	struct transfer *transfer = &request->transfer;
	uint32_t most = request->call.endpoint->config.data_bytes;
	uint64_t left = transfer->length - transfer->asked;

	if (transfer->error || !left || transfer->under_way == PIECES_AT_A_TIME)
		return false;
	*ret = transfer->asked;
	transfer->asked += left < most ? left : most;
	transfer->under_way++;
	return true;
}

/* Asks for pieces until enough are under way. One at a time does so: a piece that is there at once comes back here, and
 * is seen by who is here already. The endpoint is locked, and is not afterwards. */
static void drive(struct request *request)
{
	struct transfer *transfer = &request->transfer;
	struct ldma_lock *lock = &request->call.endpoint->lock;
	bool is_over;
	uint64_t offset;

	if (transfer->is_driven) {
		transfer->has_news = true;
		ldma_unlock(lock);
		return;
	}
	transfer->is_driven = true;
	do {
		transfer->has_news = false;
		while (next_piece(request, &offset)) {
			int error;

			ldma_unlock(lock);
			error = ask(request, offset);
			ldma_lock(lock);
			if (error) {
				transfer->under_way--;
				transfer->error = error;
			}
		}
	} while (transfer->has_news);
	transfer->is_driven = false;
	is_over = !transfer->under_way && (transfer->error || transfer->asked == transfer->length);
	ldma_unlock(lock);
	if (is_over)
		transfer->complete(request, transfer->error);
}

void transfer_start(struct request *request, const struct ldma_rpcrdma_chunk *chunk, uint64_t from,
		    uint8_t *memory, uint64_t length, bool is_pull,
		    void (*complete)(struct request *request, int error))
{
	request->transfer = (struct transfer){
		.chunk = chunk,
		.memory = memory,
		.from = from,
		.length = length,
		.is_pull = is_pull,
		.complete = complete,
	};
	ldma_lock(&request->call.endpoint->lock);
	drive(request);
}
