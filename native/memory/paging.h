/* SPDX-License-Identifier: BSD-2-Clause */
/* A paged region is memory of the program that is not pinned. The device copies to and from the program's own
 * addresses; the region's table says page by page whether it may. The device asks for a page that is absent there (a
 * fault) and tries again later; the filler fills it meanwhile.
 *
 * The owner of the program's memory (the pager, or a test) keeps the table in step with it by the calls below:
 * ldma_paged_..._range and ..._page. All of them and the filler's calls are made in the gate; the device's are not. */
#ifndef LDMA_PAGING_H
#define LDMA_PAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/table.h"

#define LDMA_PAGE_SHIFT 12
#define LDMA_PAGE (UINT64_C(1) << LDMA_PAGE_SHIFT)
#define LDMA_FAULTS 256     /* waiting at a time; what finds no room is asked for again */
#define LDMA_FAULT_PAGES 64 /* of one fault: the page that is needed and those after it */
#define LDMA_FAULT_RETRY_NS UINT64_C(100000) /* after so long, what waits for a page tries again */

/* An access that asked for a page which cannot be filled is refused when it tries again within this time. Then the
 * device forgets the refusal: a later access has not asked, and things may have changed. An RNR timer is two thirds of
 * a second at most. */
#define LDMA_REFUSAL_SECONDS 2

struct ldma_paging;
struct ldma_paged;

/* How to reach memory that may vanish at any moment. Each access returns false if the memory is not there or may not be
 * used that way. */
struct ldma_paging_ops {
	/* The gate: a lock held from looking at an entry to the end of using the page. So a thread that holds it knows
	 * that no page is in use which is not in the table. */
	void (*enter)(struct ldma_paging *paging);
	void (*leave)(struct ldma_paging *paging);
	bool (*load)(void *buf, const void *memory, size_t length);
	bool (*store)(void *memory, const void *buf, size_t length);
	/* *expected becomes what was there; *ret_done: whether it was the expected value and was replaced. */
	bool (*compare_exchange)(uint64_t *memory, uint64_t *expected, uint64_t desired,
				 bool *ret_done);
	void (*wake)(struct ldma_paging *paging); /* wakes the filler: a fault waits; in the gate */
	uint64_t (*seconds)(void);                /* of any clock that never goes back */
};

/* A request to fill pages. Page first of the region is needed; the others are likely to be needed soon. */
struct ldma_fault {
	struct ldma_paged *paged;
	uint64_t first;
	uint32_t count;
	bool is_write;
	bool is_claimed; /* made by ldma_paged_claim */
};

/* What paged regions have in common: the operations with the gate, and the queue of faults for the filler. */
struct ldma_paging {
	const struct ldma_paging_ops *ops; /* NULL: the memory stays, one thread uses it */
	struct ldma_fault faults[LDMA_FAULTS];
	uint32_t head, tail;
};

/* Counts pages and faults. */
struct ldma_paged_counters {
#define PAGED_COUNTER(name) uint64_t name;
#include "memory/paging.def"
};

struct ldma_paged {
	struct ldma_paging *paging;
	struct ldma_table table; /* from the page on in which the memory begins */
	uint8_t *memory;
	uint64_t length;
	struct ldma_paged_counters counters;
};

enum ldma_paged_result {
	LDMA_PAGED_OK,
	LDMA_PAGED_ABSENT, /* the caller tries again later */
	LDMA_PAGED_DENIED, /* could not be filled, or is dead; the next access tries to fill it anew */
};

void ldma_paging_init(struct ldma_paging *paging, const struct ldma_paging_ops *ops);

/* Makes a region in which all pages are absent. Returns 0, -EINVAL or -ENOMEM. */
int ldma_paged_init(struct ldma_paged *paged, struct ldma_paging *paging, void *memory,
		    uint64_t length);

/* The device's calls, made outside of the gate. Ranges are within the region. A store that is not OK may have written
 * the first bytes of the range. */
enum ldma_paged_result ldma_paged_load(struct ldma_paged *paged, uint64_t offset, void *buf,
				       uint32_t length);
enum ldma_paged_result ldma_paged_store(struct ldma_paged *paged, uint64_t offset, const void *buf,
					uint32_t length);
enum ldma_paged_result ldma_paged_atomic(struct ldma_paged *paged, uint64_t offset,
					 uint64_t (*change)(uint64_t old, const void *context),
					 const void *context, uint64_t *ret_old);
/* Returns what a load or store of the range would return now. */
enum ldma_paged_result ldma_paged_look(struct ldma_paged *paged, uint64_t offset, uint64_t length,
				       bool is_write);
/* Asks for the first absent page of the range and some after it, unless they are being filled already. */
void ldma_paged_fault(struct ldma_paged *paged, uint64_t offset, uint64_t length, bool is_write);

/* The filler's calls, made in the gate. */

/* Takes the oldest fault. Returns false if there is none. */
bool ldma_paging_take_fault(struct ldma_paging *paging, struct ldma_fault *ret);

/* Makes a fault before an access needs it: of the first pages in the range that are absent and not asked for; its count
 * is 0 if there are none. Returns the offset up to which it looked. */
#define LDMA_CLAIM_PAGES 512
uint64_t ldma_paged_claim(struct ldma_paged *paged, uint64_t offset, uint64_t length, bool is_write,
			  struct ldma_fault *ret);

/* Enters the first `filled` pages of the fault, which were filled. 0: the needed page cannot be filled, and its next
 * access is denied. Pages that were invalidated meanwhile stay absent. */
void ldma_paged_resolve(const struct ldma_fault *fault, uint32_t filled);

/* The calls below say what happened to the program's memory, and are made in the gate. Offsets and lengths are in
 * bytes; they are cut to the region and widened to whole pages. */

/* End the region. ldma_paged_release drops its faults, in the gate. ldma_paged_destroy frees its table, outside of the
 * gate: freeing memory may have to wait for the thread that keeps tables in step. */
void ldma_paged_release(struct ldma_paged *paged);
void ldma_paged_destroy(struct ldma_paged *paged);

/* The content is gone, or the rights there have changed: the device has to ask again. */
void ldma_paged_invalidate_range(struct ldma_paged *paged, uint64_t offset, uint64_t length);

/* The mapping is gone: the device does not touch the range until the program offers it again. */
void ldma_paged_unmap_range(struct ldma_paged *paged, uint64_t offset, uint64_t length);
void ldma_paged_offer_range(struct ldma_paged *paged, uint64_t offset, uint64_t length);

/* The memory is there: the device may use it at once. */
void ldma_paged_update_range(struct ldma_paged *paged, uint64_t offset, uint64_t length,
			     bool is_writable);

static inline void ldma_paged_invalidate_page(struct ldma_paged *paged, uint64_t offset)
{
	ldma_paged_invalidate_range(paged, offset, 1);
}

static inline void ldma_paged_update_page(struct ldma_paged *paged, uint64_t offset,
					  bool is_writable)
{
	ldma_paged_update_range(paged, offset, 1, is_writable);
}

/* Returns how many pages the device may read. */
uint64_t ldma_paged_present(const struct ldma_paged *paged);

static inline void ldma_paging_enter(struct ldma_paging *paging)
{
	if (paging->ops)
		paging->ops->enter(paging);
}

static inline void ldma_paging_leave(struct ldma_paging *paging)
{
	if (paging->ops)
		paging->ops->leave(paging);
}

#endif
