/* SPDX-License-Identifier: BSD-2-Clause */
/* A window is a range of DMA addresses that is reserved in one step and backed with memory in a second one, part by
 * part, while peers use the rest. The rules are those of Linux's dma_iova_* calls, on the device's own table: a model
 * of that contract, not of an IOMMU. The caller owns struct ldma_window and the memory; the thread that owns the device
 * calls all of this.
 *
 * The device cannot use linked memory before it is synced. Every link but the first begins, and every link but the last
 * ends, on a granule; the first may begin within one, if the window was reserved so. */
#ifndef LDMA_WINDOW_H
#define LDMA_WINDOW_H

#include "memory/iova.h"

struct ldma_window {
	struct ldma_iova *iova;
	struct ldma_window *next; /* of the device, by address */
	struct ldma_table table;
	uint64_t va, size; /* of offset 0; in bytes from there */
	uint64_t pad;      /* bytes of the first granule that are before offset 0 */
	uint64_t
		end; /* offset where a link ends within its granule; else the end of the last granule */
	uint64_t linked, pieces; /* granules with memory; their runs, neighbours merged */
	uint32_t users;          /* regions */
	bool is_guarded; /* its memory may vanish (guarded.h): set before anything is linked */
};

/* Reserves size bytes. pad: where in its granule the first memory will begin. Returns 0; -EINVAL: a granule size that
 * does not exist, no bytes, or a pad beyond the granule; -ENOSPC: no such range is free (the caller can map buffers one
 * by one instead); -ENOMEM. */
int ldma_window_reserve(struct ldma_window *window, struct ldma_iova *iova, uint64_t size,
			uint8_t shift, uint64_t pad);

/* Links memory at the offset. Returns 0, or with nothing changed -EINVAL: outside of the window or no bytes; -EEXIST:
 * linked already; -EIO: memory or offset are not on a granule where they have to be, or the link would follow one that
 * ends within a granule. The memory must stay until it is unlinked. */
int ldma_window_link(struct ldma_window *window, uint64_t offset, void *memory, uint64_t length);

/* Lets the device use what is linked in the range. Returns 0; -EINVAL; -ENOENT: the range has a hole, nothing
 * changed. */
int ldma_window_sync(struct ldma_window *window, uint64_t offset, uint64_t length);

/* After ldma_window_drain no message may begin to use the range; those that have begun go on (ldma_device_uses tells
 * when they are done). ldma_window_reopen undoes it. Errors as ldma_window_sync. */
int ldma_window_drain(struct ldma_window *window, uint64_t offset, uint64_t length);
int ldma_window_reopen(struct ldma_window *window, uint64_t offset, uint64_t length);

/* Takes the memory out at once. Errors as ldma_window_sync, and -EIO if the range ends within a granule. */
int ldma_window_unlink(struct ldma_window *window, uint64_t offset, uint64_t length);

/* Gives the addresses back. Returns 0, or -EBUSY while anything is linked or a region is on it. */
int ldma_window_free(struct ldma_window *window);

/* Unlinks all that is linked, at once, and gives the addresses back. Returns 0, or -EBUSY while a region is on it. */
int ldma_window_close(struct ldma_window *window);

/* Unlinks what is linked, length bytes from the start, and gives the addresses back. Returns 0; -EINVAL, with nothing
 * changed, unless that is one piece without holes and all that is linked; -EBUSY while a region is on it. */
int ldma_window_destroy(struct ldma_window *window, uint64_t length);

#endif
