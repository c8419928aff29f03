/* SPDX-License-Identifier: BSD-2-Clause */
/* The address space of a device: it turns a region's key and a virtual address into memory, and checks the access.
 * Every access of the device goes through here, one packet's payload at a time, so that what backs an address may
 * change between two packets. The device owns its struct ldma_iova; the thread that owns the device calls all of this.
 */
#ifndef LDMA_IOVA_H
#define LDMA_IOVA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/pd.h"
#include "memory/table.h"

/* Bits as in ibv_access_flags; local reading is always allowed. */
enum ldma_access {
	LDMA_ACCESS_LOCAL_READ = 0,
	LDMA_ACCESS_LOCAL_WRITE = 1,
	LDMA_ACCESS_REMOTE_WRITE = 2,
	LDMA_ACCESS_REMOTE_READ = 4,
	LDMA_ACCESS_REMOTE_ATOMIC = 8,
	LDMA_ACCESS_REMOTE_INVALIDATE = 1
		<< 16, /* a SEND with invalidate may end the region's use */
	LDMA_ACCESS_ALL = 0x1000f,
};

/* The result of an access. */
enum ldma_iova_result {
	LDMA_IOVA_OK,
	LDMA_IOVA_DENIED, /* by the key, the protection domain, the range, the rights, or because nothing is mapped */
	LDMA_IOVA_ABSENT, /* of a paged region: the caller asks for it with ldma_iova_fault and tries again later */
};

struct ldma_paged;
struct ldma_window;

/* One region: over memory in one piece, over a window, or paged. The key serves as lkey and rkey. */
struct ldma_region {
	uint64_t va, length;
	uint8_t *memory;
	struct ldma_window *window;
	struct ldma_paged *paged;
	struct ldma_pd *pd;
	uint32_t key, access;
	uint32_t next; /* in its bucket or in the list of free regions */
	bool is_valid;
};

/* Addresses of windows begin here, above those of processes: a mix-up is an access error. */
#define LDMA_IOVA_FIRST (UINT64_C(1) << 48)

#define LDMA_IOVA_LINES 256 /* of each size */

/* A line of the translation cache: a range whose memory is in one piece. Long lines are for whole blocks of a table in
 * one piece, short lines for less. */
struct ldma_iova_line {
	uint64_t start, end;
	uint8_t *memory; /* at start */
	uint32_t key;
	uint64_t generation; /* of the tables when it was read */
};

struct ldma_iova {
	struct ldma_region *regions;
	uint32_t *buckets;
	uint32_t capacity, free, count; /* capacity is a power of two */
	struct ldma_window *windows;    /* by address */
	uint64_t end;                   /* of the addresses for windows */
	struct ldma_iova_line *lines;   /* short ones, then long ones */
	uint64_t generation, hits, misses;
};

/* capacity is the most regions, rounded up to a power of two; space: bytes of addresses for windows. Returns 0 or
 * -ENOMEM. */
int ldma_iova_init(struct ldma_iova *iova, uint32_t capacity, uint64_t space);

/* The caller has freed all windows before. */
void ldma_iova_destroy(struct ldma_iova *iova);

/* Makes length bytes at memory a region that starts at va. The key is the caller's 32 random bits, all of them, so that
 * no peer can guess one. The memory belongs to the caller and must stay until ldma_iova_deregister. The region uses the
 * protection domain. Returns 0; -EEXIST: the key is in use or is 0, and the caller tries others; -ENOMEM: all regions
 * are in use; -EINVAL: rights that do not exist, remote writing without local writing (IBA 10.6.3), or a range beyond
 * the address space. */
int ldma_iova_register(struct ldma_iova *iova, struct ldma_pd *pd, void *memory, uint64_t va,
		       uint64_t length, uint32_t access, uint32_t random_key);

/* Does the same over all of a window, which must stay as long. */
int ldma_iova_register_window(struct ldma_iova *iova, struct ldma_pd *pd,
			      struct ldma_window *window, uint32_t access, uint32_t random_key);

/* Does the same over all of a paged region, which must stay as long. */
int ldma_iova_register_paged(struct ldma_iova *iova, struct ldma_pd *pd, struct ldma_paged *paged,
			     uint64_t va, uint32_t access, uint32_t random_key);

/* Ends the region and frees its key. Returns 0 or -ENOENT. */
int ldma_iova_deregister(struct ldma_iova *iova, uint32_t key);

/* ldma_iova_may_invalidate returns whether a peer that may use pd may invalidate the region. ldma_iova_invalidate does
 * it: from then on every access by the key fails, until it is deregistered. */
bool ldma_iova_may_invalidate(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key);
void ldma_iova_invalidate(struct ldma_iova *iova, uint32_t key);

/* Returns whether a message that begins now may use all of the range (IBA 9.7.4.1.5, 10.6.3). In a paged region it does
 * not look at pages: those of a long message need not be there all at once. */
enum ldma_iova_result ldma_iova_check(const struct ldma_iova *iova, const struct ldma_pd *pd,
				      uint32_t key, uint64_t va, uint64_t length, uint32_t access);

/* Copy from data to the range, or from the range to buf, as part of a message that has begun: all of it or nothing. In
 * a guarded window, whose memory may be gone, perhaps a part of it. */
enum ldma_iova_result ldma_iova_write(struct ldma_iova *iova, const struct ldma_pd *pd,
				      uint32_t key, uint64_t va, const void *data, uint32_t length,
				      uint32_t access);
enum ldma_iova_result ldma_iova_read(struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key,
				     uint64_t va, void *buf, uint32_t length, uint32_t access);

/* Replaces the eight bytes at va by what change returns for them. It is denied also if their memory is not aligned or
 * is guarded, since it would not be atomic for this host's processors. */
enum ldma_iova_result ldma_iova_atomic(struct ldma_iova *iova, const struct ldma_pd *pd,
				       uint32_t key, uint64_t va,
				       uint64_t (*change)(uint64_t old, const void *context),
				       const void *context, uint64_t *ret_old);

/* Returns whether the pages of the range are there. The answer is OK for a region that is not paged. */
enum ldma_iova_result ldma_iova_look(const struct ldma_iova *iova, const struct ldma_pd *pd,
				     uint32_t key, uint64_t va, uint64_t length, uint32_t access);

/* Asks for the first absent page of the range, and for some of those that follow. */
void ldma_iova_fault(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key,
		     uint64_t va, uint64_t length, uint32_t access);

/* Empties the translation cache, because a table has changed. */
static inline void ldma_iova_forget(struct ldma_iova *iova)
{
	iova->generation++;
}

#endif
