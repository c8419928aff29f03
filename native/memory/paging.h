/* Paged regions: memory of the program that nobody has pinned. The device copies to and from the program's own addresses;
 * a table of its own says page by page whether it may. A page that is absent there is asked for (a fault) and filled by
 * somebody else, while whoever wanted it comes again later.
 *
 * The table is kept in step with the program's by the calls below: ldma_paged_..._range and ..._page. */
#ifndef LDMA_PAGING_H
#define LDMA_PAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "table.h"

#define LDMA_PAGE_SHIFT 12
#define LDMA_PAGE (UINT64_C(1) << LDMA_PAGE_SHIFT)
#define LDMA_FAULTS 256     /* waiting at a time; what finds no room is asked for again */
#define LDMA_FAULT_PAGES 64 /* of one fault: the page that is needed and those after it */
#define LDMA_FAULT_RETRY_NS UINT64_C(100000) /* until who has to wait for a page looks again */

/* For so long who asked for a page may come back and hear that it cannot be filled. Then it is forgotten: whoever comes
 * has not asked, and things may have changed. An RNR timer is two thirds of a second at most. */
#define LDMA_REFUSAL_SECONDS 2

struct ldma_paging;
struct ldma_paged;

/* How memory is reached that may vanish at any moment. Each returns false if it is not there or not writable. */
struct ldma_paging_ops {
	/* The gate: held around looking at an entry and using the page, so that who closes it knows that no page is in
	 * use which is not in the table. */
	void (*enter)(struct ldma_paging *paging);
	void (*leave)(struct ldma_paging *paging);
	bool (*load)(void *buf, const void *memory, size_t length);
	bool (*store)(void *memory, const void *buf, size_t length);
	/* *expected becomes what was there; *ret_done: whether it was that, and is now desired. */
	bool (*compare_exchange)(uint64_t *memory, uint64_t *expected, uint64_t desired,
				 bool *ret_done);
	void (*wake)(struct ldma_paging *paging); /* a fault is waiting; in the gate */
	uint64_t (*seconds)(void);                /* of any clock that goes on */
};

/* Page first of the region is needed; the others are likely to be, soon. */
struct ldma_fault {
	struct ldma_paged *paged;
	uint64_t first;
	uint32_t count;
	bool is_write;
	bool is_claimed; /* by ldma_paged_claim */
};

/* What paged regions have in common: the gate and who fills pages. */
struct ldma_paging {
	const struct ldma_paging_ops *ops; /* NULL: the memory stays, one thread uses it */
	struct ldma_fault faults[LDMA_FAULTS];
	uint32_t head, tail;
};

/* Pages and faults, unless said otherwise. */
struct ldma_paged_counters {
#define PAGED_COUNTER(name) uint64_t name;
#include "paging.def"
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
	LDMA_PAGED_ABSENT, /* comes back later */
	LDMA_PAGED_DENIED, /* could not be filled, or is dead; asked once more, it is tried once more */
};

void ldma_paging_init(struct ldma_paging *paging, const struct ldma_paging_ops *ops);

/* All pages are absent. 0, -EINVAL or -ENOMEM. */
int ldma_paged_init(struct ldma_paged *paged, struct ldma_paging *paging, void *memory,
		    uint64_t length);

/* The device's side, outside of the gate. Ranges are within the region. A store that is not OK may have written the
 * first bytes of the range. */
enum ldma_paged_result ldma_paged_load(struct ldma_paged *paged, uint64_t offset, void *buf,
				       uint32_t length);
enum ldma_paged_result ldma_paged_store(struct ldma_paged *paged, uint64_t offset, const void *buf,
					uint32_t length);
enum ldma_paged_result ldma_paged_atomic(struct ldma_paged *paged, uint64_t offset,
					 uint64_t (*change)(uint64_t old, const void *context),
					 const void *context, uint64_t *ret_old);
/* Whether it would be OK now. */
enum ldma_paged_result ldma_paged_look(struct ldma_paged *paged, uint64_t offset, uint64_t length,
				       bool is_write);
/* Asks for the first page of the range that is absent and some after it, unless they are being filled already. */
void ldma_paged_fault(struct ldma_paged *paged, uint64_t offset, uint64_t length, bool is_write);

/* The filler's side, in the gate. The oldest fault; false if there is none. */
bool ldma_paging_take_fault(struct ldma_paging *paging, struct ldma_fault *ret);

/* A fault that nobody had to wait for: of the first pages in the range that are absent and not asked for, none if its
 * count is 0. Returns the offset up to where the range was looked at. */
#define LDMA_CLAIM_PAGES 512
uint64_t ldma_paged_claim(struct ldma_paged *paged, uint64_t offset, uint64_t length, bool is_write,
			  struct ldma_fault *ret);

/* The first pages of the fault were filled, as many as filled says; none: the page that is needed cannot be, which its
 * next user will hear. Those that were invalidated meanwhile stay absent. */
void ldma_paged_resolve(const struct ldma_fault *fault, uint32_t filled);

/* What happened to the program's memory, in the gate; offsets and lengths in bytes, cut to the region and widened to whole
 * pages. */

/* The region goes: its faults are forgotten. Then, outside of the gate, since freeing memory may have to wait for who keeps
 * tables in step: its table. */
void ldma_paged_release(struct ldma_paged *paged);
void ldma_paged_destroy(struct ldma_paged *paged);

/* The content went, or what may be done there changed: the device has to ask again. */
void ldma_paged_invalidate_range(struct ldma_paged *paged, uint64_t offset, uint64_t length);

/* The mapping went: nothing there is touched until the program offers the range again, with update. */
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

/* Pages that the device may read. */
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
