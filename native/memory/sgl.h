/* Scatter/gather lists: a message as pieces of local memory. */
#ifndef LDMA_SGL_H
#define LDMA_SGL_H

#include "iova.h"

struct ldma_sge {
	uint64_t va;
	uint32_t length, lkey;
};

/* The list's bytes together; UINT64_MAX is never reached. */
uint64_t ldma_sgl_length(const struct ldma_sge *sge, uint32_t count);

/* Copies length bytes at offset of the list to buf. buf is unspecified unless it is LDMA_IOVA_OK. */
enum ldma_iova_result ldma_sgl_gather(struct ldma_iova *iova, const struct ldma_pd *pd,
				      const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				      uint32_t length, uint8_t *buf);

/* Copies length bytes of buf to offset of the list. Denied also if the list ends before; pieces before the one that was
 * denied are written. */
enum ldma_iova_result ldma_sgl_scatter(struct ldma_iova *iova, const struct ldma_pd *pd,
				       const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				       uint32_t length, const uint8_t *buf);

/* Whether the list's bytes are there and may be written, as far as they are in paged regions. */
enum ldma_iova_result ldma_sgl_look(const struct ldma_iova *iova, const struct ldma_pd *pd,
				    const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				    uint64_t length);

/* Asks for the pages that are absent (ldma_iova_fault). access: what is to be done there. */
void ldma_sgl_fault(const struct ldma_iova *iova, const struct ldma_pd *pd,
		    const struct ldma_sge *sge, uint32_t count, uint64_t offset, uint64_t length,
		    uint32_t access);

#endif
