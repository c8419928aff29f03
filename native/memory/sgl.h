/* SPDX-License-Identifier: BSD-2-Clause */
/* A scatter/gather list describes a message as pieces of local memory, each named by an lkey and an address. The list
 * belongs to the caller; the thread that owns the device calls these functions. */
#ifndef LDMA_SGL_H
#define LDMA_SGL_H

#include "memory/iova.h"

struct ldma_sge {
	uint64_t va;
	uint32_t length, lkey;
};

/* Returns the sum of the pieces' lengths; it cannot overflow. */
uint64_t ldma_sgl_length(const struct ldma_sge *sge, uint32_t count);

/* Copies length bytes at offset of the list to buf. buf is unspecified unless the result is LDMA_IOVA_OK. */
enum ldma_iova_result ldma_sgl_gather(struct ldma_iova *iova, const struct ldma_pd *pd,
				      const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				      uint32_t length, uint8_t *buf);

/* Copies length bytes of buf to offset of the list. It is denied also if the list ends before; pieces before the one
 * that was denied are written. */
enum ldma_iova_result ldma_sgl_scatter(struct ldma_iova *iova, const struct ldma_pd *pd,
				       const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				       uint32_t length, const uint8_t *buf);

/* Returns whether the list's bytes that are in paged regions are there and may be written. */
enum ldma_iova_result ldma_sgl_look(const struct ldma_iova *iova, const struct ldma_pd *pd,
				    const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				    uint64_t length);

/* Asks for the pages that are absent (ldma_iova_fault). access: the right that the access will need. */
void ldma_sgl_fault(const struct ldma_iova *iova, const struct ldma_pd *pd,
		    const struct ldma_sge *sge, uint32_t count, uint64_t offset, uint64_t length,
		    uint32_t access);

#endif
