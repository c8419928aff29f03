/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/paging.h"

#include <errno.h>
#include <string.h>

#define WRITABLE (LDMA_ENTRY_PRESENT | LDMA_ENTRY_WRITABLE)

struct pages {
	uint64_t first, end;
};

void ldma_paging_init(struct ldma_paging *paging, const struct ldma_paging_ops *ops)
{
	*paging = (struct ldma_paging){.ops = ops};
}

/* Returns how many bytes of the region's first page are before the region. */
static uint64_t pad(const struct ldma_paged *paged)
{
	return (uintptr_t)paged->memory & (LDMA_PAGE - 1);
}

int ldma_paged_init(struct ldma_paged *paged, struct ldma_paging *paging, void *memory,
		    uint64_t length)
{
	*paged = (struct ldma_paged){.paging = paging, .memory = memory, .length = length};
	if (!memory || !length || length > UINT64_MAX - LDMA_PAGE)
		return -EINVAL;
	return ldma_table_init(&paged->table,
			       (pad(paged) + length + LDMA_PAGE - 1) >> LDMA_PAGE_SHIFT,
			       LDMA_PAGE_SHIFT);
}

static struct pages pages_of(const struct ldma_paged *paged, uint64_t offset, uint64_t length)
{
	if (offset > paged->length)
		offset = paged->length;
	if (length > paged->length - offset)
		length = paged->length - offset;
	if (!length)
		return (struct pages){0, 0};
	return (struct pages){(pad(paged) + offset) >> LDMA_PAGE_SHIFT,
			      ((pad(paged) + offset + length - 1) >> LDMA_PAGE_SHIFT) + 1};
}

static void set(struct ldma_paged *paged, uint64_t page, uint32_t flags)
{
	const uint8_t *memory = paged->memory - pad(paged) + (page << LDMA_PAGE_SHIFT);

	ldma_table_set(&paged->table, page, 1, memory, flags);
}

static uint64_t now(const struct ldma_paged *paged)
{
	const struct ldma_paging_ops *ops = paged->paging->ops;

	return ops ? ops->seconds() : 0;
}

/* Marks a page as refused. The entry holds the time instead of an address, which is known without. */
static void refuse(struct ldma_paged *paged, uint64_t page, uint32_t flags)
{
	const void *time = (const void *)(uintptr_t)(now(paged) << LDMA_PAGE_SHIFT);

	ldma_table_set(&paged->table, page, 1, time, flags);
}

static bool is_fresh(const struct ldma_paged *paged, uint64_t page)
{
	uint64_t refused = paged->table.entries[page] >> LDMA_PAGE_SHIFT;

	return now(paged) - refused <= LDMA_REFUSAL_SECONDS;
}

/* Returns what an access to the page gets. A page that could not be filled is denied once, so that the next access
 * tries again. */
static enum ldma_paged_result look_at(struct ldma_paged *paged, uint64_t page, bool is_write)
{
	uint32_t wanted = is_write ? WRITABLE : LDMA_ENTRY_PRESENT;
	uint32_t refusal = is_write ? LDMA_ENTRY_UNWRITABLE : LDMA_ENTRY_UNREADABLE;
	uint32_t flags = paged->table.entries[page] & LDMA_ENTRY_FLAGS;
	enum ldma_paged_result result;

	if ((flags & wanted) == wanted)
		return LDMA_PAGED_OK;
	if (flags & LDMA_ENTRY_DEAD)
		return LDMA_PAGED_DENIED;
	if (!(flags & refusal))
		return LDMA_PAGED_ABSENT;
	result = is_fresh(paged, page) ? LDMA_PAGED_DENIED : LDMA_PAGED_ABSENT;
	set(paged, page, flags & ~refusal);
	return result;
}

static enum ldma_paged_result look(struct ldma_paged *paged, struct pages pages, bool is_write)
{
	for (uint64_t page = pages.first; page < pages.end; page++) {
		enum ldma_paged_result result = look_at(paged, page, is_write);

		if (result != LDMA_PAGED_OK)
			return result;
	}
	return LDMA_PAGED_OK;
}

enum ldma_paged_result ldma_paged_look(struct ldma_paged *paged, uint64_t offset, uint64_t length,
				       bool is_write)
{
	enum ldma_paged_result result;

	ldma_paging_enter(paged->paging);
	result = look(paged, pages_of(paged, offset, length), is_write);
	ldma_paging_leave(paged->paging);
	return result;
}

static void forget(struct ldma_paged *paged, struct pages pages)
{
	for (uint64_t page = pages.first; page < pages.end; page++) {
		uint64_t entry = paged->table.entries[page];

		if (entry & LDMA_ENTRY_PRESENT)
			paged->counters.invalidations++;
		if (entry && !(entry & LDMA_ENTRY_DEAD))
			ldma_table_clear(&paged->table, page, 1);
	}
}

/* The pages were in the table, but not there: the program changed them in a way that the kernel does not report. */
static enum ldma_paged_result note_vanished(struct ldma_paged *paged, struct pages pages)
{
	paged->counters.vanished++;
	forget(paged, pages);
	return LDMA_PAGED_ABSENT;
}

static bool load(const struct ldma_paging_ops *ops, void *buf, const void *memory, size_t length)
{
	if (ops)
		return ops->load(buf, memory, length);
	memcpy(buf, memory, length);
	return true;
}

static bool store(const struct ldma_paging_ops *ops, void *memory, const void *buf, size_t length)
{
	if (ops)
		return ops->store(memory, buf, length);
	memcpy(memory, buf, length);
	return true;
}

static bool compare_exchange(const struct ldma_paging_ops *ops, uint64_t *memory,
			     uint64_t *expected, uint64_t desired, bool *ret_done)
{
	if (ops)
		return ops->compare_exchange(memory, expected, desired, ret_done);
	*ret_done = __atomic_compare_exchange_n(memory, expected, desired, false, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST);
	return true;
}

enum ldma_paged_result ldma_paged_load(struct ldma_paged *paged, uint64_t offset, void *buf,
				       uint32_t length)
{
	struct pages pages = pages_of(paged, offset, length);
	enum ldma_paged_result result;

	ldma_paging_enter(paged->paging);
	result = look(paged, pages, false);
	if (result == LDMA_PAGED_OK &&
	    !load(paged->paging->ops, buf, paged->memory + offset, length))
		result = note_vanished(paged, pages);
	ldma_paging_leave(paged->paging);
	return result;
}

enum ldma_paged_result ldma_paged_store(struct ldma_paged *paged, uint64_t offset, const void *buf,
					uint32_t length)
{
	struct pages pages = pages_of(paged, offset, length);
	enum ldma_paged_result result;

	ldma_paging_enter(paged->paging);
	result = look(paged, pages, true);
	if (result == LDMA_PAGED_OK &&
	    !store(paged->paging->ops, paged->memory + offset, buf, length))
		result = note_vanished(paged, pages);
	ldma_paging_leave(paged->paging);
	return result;
}

enum ldma_paged_result ldma_paged_atomic(struct ldma_paged *paged, uint64_t offset,
					 uint64_t (*change)(uint64_t old, const void *context),
					 const void *context, uint64_t *ret_old)
{
	struct pages pages = pages_of(paged, offset, sizeof(uint64_t));
	uint64_t *memory = (uint64_t *)(paged->memory + offset), old = 0;
	const struct ldma_paging_ops *ops = paged->paging->ops;
	enum ldma_paged_result result;
	bool is_done = false;

	if ((uintptr_t)memory & 7)
		return LDMA_PAGED_DENIED;
	ldma_paging_enter(paged->paging);
	result = look(paged, pages, true);
	/* The first attempt finds out what is there, unless 0 is already right. */
	while (result == LDMA_PAGED_OK && !is_done)
		if (!compare_exchange(ops, memory, &old, change(old, context), &is_done))
			result = note_vanished(paged, pages);
	ldma_paging_leave(paged->paging);
	*ret_old = old;
	return result;
}

/* Marks a run of pages as asked for, from the first absent one on, and returns it. It is empty if that page is being
 * filled or will be refused. */
static struct pages mark_faulting(struct ldma_paged *paged, struct pages pages, bool is_write)
{
	uint32_t wanted = is_write ? WRITABLE : LDMA_ENTRY_PRESENT;
	uint32_t refusal = is_write ? LDMA_ENTRY_UNWRITABLE : LDMA_ENTRY_UNREADABLE;
	struct pages run = {0, 0};

	for (uint64_t page = pages.first; page < pages.end; page++) {
		uint32_t flags = paged->table.entries[page] & LDMA_ENTRY_FLAGS;

		if ((flags & wanted) == wanted) {
			if (run.end)
				break;
			continue;
		}
		if (flags & (LDMA_ENTRY_FAULTING | LDMA_ENTRY_DEAD | refusal))
			break;
		set(paged, page, flags | LDMA_ENTRY_FAULTING);
		if (!run.end)
			run.first = page;
		run.end = page + 1;
	}
	return run;
}

void ldma_paged_fault(struct ldma_paged *paged, uint64_t offset, uint64_t length, bool is_write)
{
	struct ldma_paging *paging = paged->paging;
	struct pages pages = pages_of(paged, offset, length);

	if (pages.end - pages.first > LDMA_FAULT_PAGES)
		pages.end = pages.first + LDMA_FAULT_PAGES;
	ldma_paging_enter(paging);
	if (paging->tail - paging->head == LDMA_FAULTS) {
		paged->counters.faults_lost++;
	} else {
		pages = mark_faulting(paged, pages, is_write);
		if (pages.end) {
			paged->counters.faults++;
			paging->faults[paging->tail++ % LDMA_FAULTS] = (struct ldma_fault){
				.paged = paged,
				.first = pages.first,
				.count = (uint32_t)(pages.end - pages.first),
				.is_write = is_write,
			};
			if (paging->ops)
				paging->ops->wake(paging);
		}
	}
	ldma_paging_leave(paging);
}

uint64_t ldma_paged_claim(struct ldma_paged *paged, uint64_t offset, uint64_t length, bool is_write,
			  struct ldma_fault *ret)
{
	struct pages pages = pages_of(paged, offset, length), run = {0, 0};

	if (pages.end - pages.first > LDMA_CLAIM_PAGES)
		pages.end = pages.first + LDMA_CLAIM_PAGES;
	for (uint64_t page = pages.first; page < pages.end && !run.end; page++)
		run = mark_faulting(paged, (struct pages){page, pages.end}, is_write);
	*ret = (struct ldma_fault){.paged = paged,
				   .first = run.first,
				   .count = (uint32_t)(run.end - run.first),
				   .is_write = is_write,
				   .is_claimed = true};
	if (run.end)
		pages.end = run.end;
	return pages.end ? (pages.end << LDMA_PAGE_SHIFT) - pad(paged) : paged->length;
}

bool ldma_paging_take_fault(struct ldma_paging *paging, struct ldma_fault *ret)
{
	while (paging->head != paging->tail) {
		*ret = paging->faults[paging->head++ % LDMA_FAULTS];
		if (ret->paged) /* else the region was released */
			return true;
	}
	return false;
}

void ldma_paged_resolve(const struct ldma_fault *fault, uint32_t filled)
{
	struct ldma_paged *paged = fault->paged;
	uint32_t right = fault->is_write ? WRITABLE : LDMA_ENTRY_PRESENT;
	uint32_t refusal = fault->is_write ? LDMA_ENTRY_UNWRITABLE : LDMA_ENTRY_UNREADABLE;

	for (uint32_t i = 0; i < fault->count; i++) {
		uint64_t page = fault->first + i;
		uint32_t flags = paged->table.entries[page] & LDMA_ENTRY_FLAGS;

		if (!(flags & LDMA_ENTRY_FAULTING)) /* invalidated meanwhile */
			continue;
		flags &= ~(uint32_t)LDMA_ENTRY_FAULTING;
		if (i < filled) {
			flags |= right;
			paged->counters.resolved += !fault->is_claimed;
			paged->counters.prefetched += fault->is_claimed;
			paged->counters.read_ahead += i > 0 && !fault->is_claimed;
		} else if (!i && !fault->is_claimed) {
			paged->counters.failed++;
			refuse(paged, page, flags | refusal);
			continue;
		}
		set(paged, page, flags);
	}
}

void ldma_paged_release(struct ldma_paged *paged)
{
	struct ldma_paging *paging = paged->paging;

	for (uint32_t i = paging->head; i != paging->tail; i++)
		if (paging->faults[i % LDMA_FAULTS].paged == paged)
			paging->faults[i % LDMA_FAULTS].paged = NULL;
}

void ldma_paged_destroy(struct ldma_paged *paged)
{
	ldma_table_destroy(&paged->table);
}

void ldma_paged_invalidate_range(struct ldma_paged *paged, uint64_t offset, uint64_t length)
{
	forget(paged, pages_of(paged, offset, length));
}

void ldma_paged_unmap_range(struct ldma_paged *paged, uint64_t offset, uint64_t length)
{
	struct pages pages = pages_of(paged, offset, length);

	forget(paged, pages);
	for (uint64_t page = pages.first; page < pages.end; page++)
		set(paged, page, LDMA_ENTRY_DEAD);
}

void ldma_paged_offer_range(struct ldma_paged *paged, uint64_t offset, uint64_t length)
{
	struct pages pages = pages_of(paged, offset, length);

	forget(paged, pages);
	ldma_table_clear(&paged->table, pages.first, pages.end - pages.first);
}

void ldma_paged_update_range(struct ldma_paged *paged, uint64_t offset, uint64_t length,
			     bool is_writable)
{
	struct pages pages = pages_of(paged, offset, length);

	for (uint64_t page = pages.first; page < pages.end; page++)
		set(paged, page, is_writable ? WRITABLE : LDMA_ENTRY_PRESENT);
}

uint64_t ldma_paged_present(const struct ldma_paged *paged)
{
	uint64_t present = 0;

	for (uint64_t page = 0; page < paged->table.count; page++)
		present += paged->table.entries[page] & LDMA_ENTRY_PRESENT;
	return present;
}
