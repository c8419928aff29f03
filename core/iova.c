#include "iova.h"

#include <errno.h>
#include <stdlib.h>

#define NONE UINT32_MAX

int ldma_iova_init(struct ldma_iova *iova, uint32_t capacity)
{
	uint32_t size = 1;

	while (size < capacity && size < 1u << 24)
		size *= 2;
	*iova = (struct ldma_iova){.capacity = size};
	iova->regions = calloc(size, sizeof(*iova->regions));
	iova->buckets = calloc(size, sizeof(*iova->buckets));
	if (!iova->regions || !iova->buckets) {
		ldma_iova_destroy(iova);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < size; i++) {
		iova->buckets[i] = NONE;
		iova->regions[i].next = i + 1 < size ? i + 1 : NONE;
	}
	return 0;
}

void ldma_iova_destroy(struct ldma_iova *iova)
{
	for (uint32_t i = 0; iova->regions && i < iova->capacity; i++)
		if (iova->regions[i].pd)
			ldma_pd_put(iova->regions[i].pd);
	free(iova->regions);
	free(iova->buckets);
	*iova = (struct ldma_iova){0};
}

/* Keys are random: their low bits are the hash. */
static uint32_t *bucket(const struct ldma_iova *iova, uint32_t key)
{
	return &iova->buckets[key & (iova->capacity - 1)];
}

static struct ldma_region *find(const struct ldma_iova *iova, uint32_t key)
{
	for (uint32_t i = *bucket(iova, key); i != NONE; i = iova->regions[i].next)
		if (iova->regions[i].key == key)
			return &iova->regions[i];
	return NULL;
}

int ldma_iova_register(struct ldma_iova *iova, struct ldma_pd *pd, void *memory, uint64_t va,
		       uint64_t length, uint32_t access, uint32_t random_key)
{
	uint32_t writes = LDMA_ACCESS_REMOTE_WRITE | LDMA_ACCESS_REMOTE_ATOMIC;
	struct ldma_region *region;
	uint32_t index;

	if (access & ~(uint32_t)LDMA_ACCESS_ALL || length > UINT64_MAX - va || !memory || !pd)
		return -EINVAL;
	if ((access & writes) && !(access & LDMA_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	if (!random_key || find(iova, random_key))
		return -EEXIST;
	if (iova->free == NONE)
		return -ENOMEM;
	index = iova->free;
	region = &iova->regions[index];
	iova->free = region->next;
	*region = (struct ldma_region){
		.va = va,
		.length = length,
		.memory = memory,
		.key = random_key,
		.pd = pd,
		.access = access,
		.next = *bucket(iova, random_key),
		.is_valid = true,
	};
	*bucket(iova, random_key) = index;
	iova->count++;
	ldma_pd_get(pd);
	return 0;
}

int ldma_iova_deregister(struct ldma_iova *iova, uint32_t key)
{
	for (uint32_t *link = bucket(iova, key); *link != NONE; link = &iova->regions[*link].next) {
		uint32_t index = *link;
		struct ldma_region *region = &iova->regions[index];

		if (region->key != key)
			continue;
		*link = region->next;
		ldma_pd_put(region->pd);
		*region = (struct ldma_region){.next = iova->free};
		iova->free = index;
		iova->count--;
		return 0;
	}
	return -ENOENT;
}

bool ldma_iova_may_invalidate(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key)
{
	const struct ldma_region *region = find(iova, key);

	return region && region->is_valid && region->pd == pd &&
	       (region->access & LDMA_ACCESS_REMOTE_INVALIDATE);
}

void ldma_iova_invalidate(struct ldma_iova *iova, uint32_t key)
{
	struct ldma_region *region = find(iova, key);

	if (region)
		region->is_valid = false;
}

void *ldma_iova_translate(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key,
			  uint64_t va, uint64_t length, uint32_t access)
{
	const struct ldma_region *region = find(iova, key);

	if (!region || !region->is_valid || region->pd != pd)
		return NULL;
	if (access & ~region->access)
		return NULL;
	if (va < region->va || va - region->va > region->length ||
	    length > region->length - (va - region->va))
		return NULL;
	return region->memory + (va - region->va);
}
