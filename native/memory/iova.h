/* Memory regions: key and virtual address -> memory. Every access of the device goes through here, one packet's payload at
 * a time, so that what backs an address may change between two packets.
 */
#ifndef LDMA_IOVA_H
#define LDMA_IOVA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pd.h"
#include "table.h"

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

/* What came of an access. */
enum ldma_iova_result {
	LDMA_IOVA_OK,
	LDMA_IOVA_DENIED, /* by the key, the protection domain, the range, the rights, or since nothing is mapped there */
	LDMA_IOVA_ABSENT, /* of a paged region: the page has to be asked for with ldma_iova_fault; come again */
};

struct ldma_paged;
struct ldma_window;

/* One region, over memory that is in one piece, over a window or paged. The key serves as lkey and rkey. */
struct ldma_region {
	uint64_t va, length;
	uint8_t *memory;
	struct ldma_window *window;
	struct ldma_paged *paged;
	struct ldma_pd *pd;
	uint32_t key, access;
	uint32_t next; /* in the bucket or the list of free regions */
	bool is_valid;
};

/* Addresses of windows begin here, above those of processes: a mix-up is an access error. */
#define LDMA_IOVA_FIRST (UINT64_C(1) << 48)

#define LDMA_IOVA_LINES 256 /* of each size */

/* A line of the translation cache: memory that is in one piece. There are long ones, for whole blocks of a table
 * that are, and short ones. */
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

/* capacity: regions at most, rounded up to a power of two; space: bytes of addresses for windows. 0 or -ENOMEM. */
int ldma_iova_init(struct ldma_iova *iova, uint32_t capacity, uint64_t space);

/* Windows have to be freed before. */
void ldma_iova_destroy(struct ldma_iova *iova);

/* Makes length bytes at memory a region that starts at va. The key is the caller's 32 random bits, all of them, so that
 * no peer can guess one. The memory must stay until ldma_iova_deregister.
 * The region uses the protection domain. 0; -EEXIST: that key is in use or is 0, come with others; -ENOMEM: all regions are in use; -EINVAL: rights that do
 * not exist, remote writing without local writing (IBA 10.6.3), or a range beyond the address space. */
int ldma_iova_register(struct ldma_iova *iova, struct ldma_pd *pd, void *memory, uint64_t va,
		       uint64_t length, uint32_t access, uint32_t random_key);

/* The same over all of a window, which must stay as long. */
int ldma_iova_register_window(struct ldma_iova *iova, struct ldma_pd *pd,
			      struct ldma_window *window, uint32_t access, uint32_t random_key);

/* The same over all of a paged region, which must stay as long. */
int ldma_iova_register_paged(struct ldma_iova *iova, struct ldma_pd *pd, struct ldma_paged *paged,
			     uint64_t va, uint32_t access, uint32_t random_key);

/* Frees the key. 0, or -ENOENT. */
int ldma_iova_deregister(struct ldma_iova *iova, uint32_t key);

/* Whether a peer that may use pd may invalidate the region, and doing so: from then on every access by key fails,
 * until it is deregistered. */
bool ldma_iova_may_invalidate(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key);
void ldma_iova_invalidate(struct ldma_iova *iova, uint32_t key);

/* Whether a message that begins now may use all of the range (IBA 9.7.4.1.5, 10.6.3). Of a paged region nothing is said
 * about pages: those of a long message need not be there all at once. */
enum ldma_iova_result ldma_iova_check(const struct ldma_iova *iova, const struct ldma_pd *pd,
				      uint32_t key, uint64_t va, uint64_t length, uint32_t access);

/* Copies from data to the range, or from the range to buf, as part of a message that has begun. All of it or nothing;
 * of a guarded window, whose memory may be gone, perhaps some of it. */
enum ldma_iova_result ldma_iova_write(struct ldma_iova *iova, const struct ldma_pd *pd,
				      uint32_t key, uint64_t va, const void *data, uint32_t length,
				      uint32_t access);
enum ldma_iova_result ldma_iova_read(struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key,
				     uint64_t va, void *buf, uint32_t length, uint32_t access);

/* Replaces the eight bytes at va by what change makes of them. Denied also if their memory is not aligned, or is
 * guarded: it would not be atomic for this host's processors. */
enum ldma_iova_result ldma_iova_atomic(struct ldma_iova *iova, const struct ldma_pd *pd,
				       uint32_t key, uint64_t va,
				       uint64_t (*change)(uint64_t old, const void *context),
				       const void *context, uint64_t *ret_old);

/* Whether the pages of the range are there, if they are a paged region's: else it is OK. */
enum ldma_iova_result ldma_iova_look(const struct ldma_iova *iova, const struct ldma_pd *pd,
				     uint32_t key, uint64_t va, uint64_t length, uint32_t access);

/* Asks for the first page of the range that is absent, and for some of those that follow. */
void ldma_iova_fault(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key,
		     uint64_t va, uint64_t length, uint32_t access);

/* A table has changed: nothing of the translation cache is true any more. */
static inline void ldma_iova_forget(struct ldma_iova *iova)
{
	iova->generation++;
}

#endif
