/* SPDX-License-Identifier: BSD-2-Clause */
#include "nfs/opens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

static struct ldma_grant **other_bucket(struct ldma_opens *opens, const uint8_t *other)
{
	return &opens->by_other[ldma_hash(other, LDMA_OTHER_BYTES) % LDMA_OPENS_BUCKETS];
}

static struct ldma_grant **handle_bucket(struct ldma_opens *opens, const uint8_t *handle,
					 uint32_t length)
{
	return &opens->by_handle[ldma_hash(handle, length) % LDMA_OPENS_BUCKETS];
}

static struct ldma_grant *look(struct ldma_opens *opens, const uint8_t *other)
{
	struct ldma_grant *grant = *other_bucket(opens, other);

	while (grant && memcmp(grant->other, other, LDMA_OTHER_BYTES))
		grant = grant->next_other;
	return grant;
}

void ldma_grant_put(struct ldma_grant *grant)
{
	if (__atomic_sub_fetch(&grant->references, 1, __ATOMIC_ACQ_REL))
		return;
	close(grant->fd);
	free(grant);
}

static int add(struct ldma_opens *opens, struct ldma_grant *grant)
{
	struct ldma_grant **bucket = other_bucket(opens, grant->other);
	int result = -EEXIST;

	ldma_lock(&opens->lock);
	if (!look(opens, grant->other)) {
		grant->next_other = *bucket;
		*bucket = grant;
		bucket = handle_bucket(opens, grant->handle, grant->handle_length);
		grant->next_handle = *bucket;
		*bucket = grant;
		opens->count++;
		result = 0;
	}
	ldma_unlock(&opens->lock);
	return result;
}

int ldma_opens_grant(struct ldma_opens *opens, const uint8_t *other,
		     struct ldma_grant_access access, const uint8_t *handle, uint32_t handle_length,
		     int fd, uint64_t client, uint32_t uid)
{
	struct ldma_grant *grant;
	struct stat status;
	int result;

	if (handle_length > LDMA_HANDLE_MAX)
		return -EINVAL;
	if (fstat(fd, &status))
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL;
	grant = calloc(1, sizeof(*grant));
	if (!grant)
		return -ENOMEM;
	memcpy(grant->other, other, LDMA_OTHER_BYTES);
	memcpy(grant->handle, handle, handle_length);
	grant->handle_length = handle_length;
	grant->client = client;
	grant->uid = uid;
	grant->device = status.st_dev;
	grant->inode = status.st_ino;
	grant->access = access;
	grant->references = 1;
	grant->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (grant->fd < 0) {
		result = -errno;
		free(grant);
		return result;
	}
	result = add(opens, grant);
	if (result)
		ldma_grant_put(grant);
	return result;
}

bool ldma_opens_update(struct ldma_opens *opens, const uint8_t *other,
		       struct ldma_grant_access access)
{
	struct ldma_grant *grant;

	ldma_lock(&opens->lock);
	grant = look(opens, other);
	if (grant)
		grant->access = access;
	ldma_unlock(&opens->lock);
	return grant != NULL;
}

/* Takes a grant out of both lists. */
static void unlink_grant(struct ldma_opens *opens, struct ldma_grant *grant)
{
	struct ldma_grant **link = other_bucket(opens, grant->other);

	while (*link != grant)
		link = &(*link)->next_other;
	*link = grant->next_other;
	link = handle_bucket(opens, grant->handle, grant->handle_length);
	while (*link != grant)
		link = &(*link)->next_handle;
	*link = grant->next_handle;
	opens->count--;
}

bool ldma_opens_revoke(struct ldma_opens *opens, const uint8_t *other)
{
	struct ldma_grant *grant;

	ldma_lock(&opens->lock);
	grant = look(opens, other);
	if (grant)
		unlink_grant(opens, grant);
	ldma_unlock(&opens->lock);
	if (grant)
		ldma_grant_put(grant);
	return grant != NULL;
}

static bool is_allowed(const struct ldma_grant *grant, const struct ldma_open_key *key)
{
	return grant->client == key->client && grant->uid == key->uid &&
	       grant->handle_length == key->handle_length &&
	       !memcmp(grant->handle, key->handle, key->handle_length) &&
	       (key->is_write ? grant->access.is_writable : grant->access.is_readable) &&
	       (!key->seqid || key->seqid == grant->access.seqid);
}

struct ldma_grant *ldma_opens_find(struct ldma_opens *opens, const struct ldma_open_key *key)
{
	struct ldma_grant *grant;

	ldma_lock(&opens->lock);
	if (key->other) {
		grant = look(opens, key->other);
		if (grant && !is_allowed(grant, key))
			grant = NULL;
	} else {
		grant = *handle_bucket(opens, key->handle, key->handle_length);
		while (grant && !is_allowed(grant, key))
			grant = grant->next_handle;
	}
	if (grant)
		__atomic_fetch_add(&grant->references, 1, __ATOMIC_RELAXED);
	ldma_unlock(&opens->lock);
	return grant;
}

void ldma_opens_clear(struct ldma_opens *opens)
{
	for (uint32_t i = 0; i < LDMA_OPENS_BUCKETS; i++)
		while (opens->by_other[i])
			ldma_opens_revoke(opens, opens->by_other[i]->other);
}
