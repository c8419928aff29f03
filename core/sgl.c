#include "sgl.h"

#include <string.h>

uint64_t ldma_sgl_length(const struct ldma_sge *sge, uint32_t count)
{
	uint64_t length = 0;

	for (uint32_t i = 0; i < count; i++)
		length += sge[i].length;
	return length;
}

/* Visits the pieces of offset .. offset + length - 1, copying into memory or out of it. */
static bool copy(const struct ldma_iova *iova, const struct ldma_pd *pd, const struct ldma_sge *sge,
		 uint32_t count, uint64_t offset, uint32_t length, const uint8_t *in, uint8_t *out)
{
	uint32_t access = in ? LDMA_ACCESS_LOCAL_WRITE : LDMA_ACCESS_LOCAL_READ;

	for (uint32_t i = 0; i < count && length; i++) {
		uint32_t piece;
		uint8_t *memory;

		if (offset >= sge[i].length) {
			offset -= sge[i].length;
			continue;
		}
		piece = sge[i].length - (uint32_t)offset;
		if (piece > length)
			piece = length;
		memory = ldma_iova_translate(iova, pd, sge[i].lkey, sge[i].va + offset, piece,
					     access);
		if (!memory)
			return false;
		if (in) {
			memcpy(memory, in, piece);
			in += piece;
		} else {
			memcpy(out, memory, piece);
			out += piece;
		}
		length -= piece;
		offset = 0;
	}
	return length == 0;
}

bool ldma_sgl_gather(const struct ldma_iova *iova, const struct ldma_pd *pd,
		     const struct ldma_sge *sge, uint32_t count, uint64_t offset, uint32_t length,
		     uint8_t *buf)
{
	return copy(iova, pd, sge, count, offset, length, NULL, buf);
}

bool ldma_sgl_scatter(const struct ldma_iova *iova, const struct ldma_pd *pd,
		      const struct ldma_sge *sge, uint32_t count, uint64_t offset, uint32_t length,
		      const uint8_t *buf)
{
	return copy(iova, pd, sge, count, offset, length, buf, NULL);
}
