/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/sgl.h"

#include <string.h>

uint64_t ldma_sgl_length(const struct ldma_sge *sge, uint32_t count)
{
	uint64_t length = 0;

	for (uint32_t i = 0; i < count; i++)
		length += sge[i].length;
	return length;
}

/* Visits the pieces of offset .. offset + length - 1, copying into memory or out of it. */
static enum ldma_iova_result copy(struct ldma_iova *iova, const struct ldma_pd *pd,
				  const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				  uint32_t length, const uint8_t *in, uint8_t *out)
{
	uint32_t access = in ? LDMA_ACCESS_LOCAL_WRITE : LDMA_ACCESS_LOCAL_READ;

	for (uint32_t i = 0; i < count && length; i++) {
		enum ldma_iova_result result;
		uint32_t piece;

		if (offset >= sge[i].length) {
			offset -= sge[i].length;
			continue;
		}
		piece = sge[i].length - (uint32_t)offset;
		if (piece > length)
			piece = length;
		if (in) {
			result = ldma_iova_write(iova, pd, sge[i].lkey, sge[i].va + offset, in,
						 piece, access);
			in += piece;
		} else {
			result = ldma_iova_read(iova, pd, sge[i].lkey, sge[i].va + offset, out,
						piece, access);
			out += piece;
		}
		if (result)
			return result;
		length -= piece;
		offset = 0;
	}
	return length ? LDMA_IOVA_DENIED : LDMA_IOVA_OK;
}

enum ldma_iova_result ldma_sgl_gather(struct ldma_iova *iova, const struct ldma_pd *pd,
				      const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				      uint32_t length, uint8_t *buf)
{
	return copy(iova, pd, sge, count, offset, length, NULL, buf);
}

enum ldma_iova_result ldma_sgl_scatter(struct ldma_iova *iova, const struct ldma_pd *pd,
				       const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				       uint32_t length, const uint8_t *buf)
{
	return copy(iova, pd, sge, count, offset, length, buf, NULL);
}

/* Returns the part of a piece that is within offset .. offset + length - 1 of the list; advances both past it. */
static struct ldma_sge cut(const struct ldma_sge *sge, uint64_t *offset, uint64_t *length)
{
	struct ldma_sge part = {.lkey = sge->lkey};

	if (*offset >= sge->length) {
		*offset -= sge->length;
		return part;
	}
	part.va = sge->va + *offset;
	part.length = sge->length - (uint32_t)*offset;
	if (part.length > *length)
		part.length = (uint32_t)*length;
	*length -= part.length;
	*offset = 0;
	return part;
}

enum ldma_iova_result ldma_sgl_look(const struct ldma_iova *iova, const struct ldma_pd *pd,
				    const struct ldma_sge *sge, uint32_t count, uint64_t offset,
				    uint64_t length)
{
	enum ldma_iova_result result = LDMA_IOVA_OK;

	for (uint32_t i = 0; i < count && length && !result; i++) {
		struct ldma_sge part = cut(&sge[i], &offset, &length);

		if (part.length)
			result = ldma_iova_look(iova, pd, part.lkey, part.va, part.length,
						LDMA_ACCESS_LOCAL_WRITE);
	}
	return result;
}

void ldma_sgl_fault(const struct ldma_iova *iova, const struct ldma_pd *pd,
		    const struct ldma_sge *sge, uint32_t count, uint64_t offset, uint64_t length,
		    uint32_t access)
{
	for (uint32_t i = 0; i < count && length; i++) {
		struct ldma_sge part = cut(&sge[i], &offset, &length);

		if (part.length)
			ldma_iova_fault(iova, pd, part.lkey, part.va, part.length, access);
	}
}
