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
