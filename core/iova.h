/* Memory regions: key and virtual address -> memory. Every access of the device goes through ldma_iova_translate, one
 * packet's payload at a time, so that what backs an address may change between two packets.
 */
#ifndef LDMA_IOVA_H
#define LDMA_IOVA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pd.h"

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

/* One region. The key serves as lkey and rkey. */
struct ldma_region {
	uint64_t va, length;
	uint8_t *memory;
	struct ldma_pd *pd;
	uint32_t key, access;
	uint32_t next; /* in the bucket or the list of free regions */
	bool is_valid;
};

struct ldma_iova {
	struct ldma_region *regions;
	uint32_t *buckets;
	uint32_t capacity, free, count; /* capacity is a power of two */
};

/* capacity: regions at most, rounded up to a power of two. 0 or -ENOMEM. */
int ldma_iova_init(struct ldma_iova *iova, uint32_t capacity);
void ldma_iova_destroy(struct ldma_iova *iova);

/* Makes length bytes at memory a region that starts at va. The key is the caller's 32 random bits, all of them, so that
 * no peer can guess one. The memory must stay until ldma_iova_deregister.
 * The region uses the protection domain. 0; -EEXIST: that key is in use or is 0, come with others; -ENOMEM: all regions are in use; -EINVAL: rights that do
 * not exist, remote writing without local writing (IBA 10.6.3), or a range beyond the address space. */
int ldma_iova_register(struct ldma_iova *iova, struct ldma_pd *pd, void *memory, uint64_t va,
		       uint64_t length, uint32_t access, uint32_t random_key);

/* Frees the key. 0, or -ENOENT. */
int ldma_iova_deregister(struct ldma_iova *iova, uint32_t key);

/* Whether a peer that may use pd may invalidate the region, and doing so: from then on every access by key fails,
 * until it is deregistered. */
bool ldma_iova_may_invalidate(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key);
void ldma_iova_invalidate(struct ldma_iova *iova, uint32_t key);

/* Where the bytes va .. va + length - 1 are, all of them in one piece, or NULL if the key, the protection domain, the
 * range or the rights (all of access) do not allow it (IBA 9.7.4.1.5, 10.6.3). */
void *ldma_iova_translate(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key,
			  uint64_t va, uint64_t length, uint32_t access);

/* Whether the whole range of a message may be accessed; nothing is said about where it is. */
static inline bool ldma_iova_allows(const struct ldma_iova *iova, const struct ldma_pd *pd,
				    uint32_t key, uint64_t va, uint64_t length, uint32_t access)
{
	return ldma_iova_translate(iova, pd, key, va, length, access) != NULL;
}

#endif
