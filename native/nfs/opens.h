/* SPDX-License-Identifier: BSD-2-Clause */
/* Grants of open files: a stateid leads to the server's own descriptor, and to the client and user that may use it.
 *
 * A grant that is revoked is not found any more; its descriptor is closed once the calls that found it before have
 * ended. Any thread may use it. */
#ifndef LDMA_OPENS_H
#define LDMA_OPENS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

#define LDMA_OTHER_BYTES 12      /* stateid4.other */
#define LDMA_HANDLE_MAX 128      /* NFS4_FHSIZE */
#define LDMA_UID_NONE UINT32_MAX /* of AUTH_NONE */
#define LDMA_OPENS_BUCKETS 16384

/* The rights of a stateid; they change under the lock of the table. */
struct ldma_grant_access {
	uint32_t seqid;
	bool is_readable, is_writable;
};

struct ldma_grant {
	/* Never change. */
	uint8_t other[LDMA_OTHER_BYTES];
	uint8_t handle[LDMA_HANDLE_MAX];
	uint32_t handle_length;
	int fd;
	uint64_t client;
	uint32_t uid;
	uint64_t device, inode;

	uint32_t references; /* atomic */
	bool cannot_nowait;  /* atomic: the file system does not support RWF_NOWAIT */
	struct ldma_grant_access access;
	struct ldma_grant *next_other, *next_handle;
};

struct ldma_opens {
	struct ldma_lock lock;
	uint32_t count;
	struct ldma_grant *by_other[LDMA_OPENS_BUCKETS];
	struct ldma_grant *by_handle[LDMA_OPENS_BUCKETS];
};

/* The grant that a call asks for, and its client and user. seqid: 0 is any. */
struct ldma_open_key {
	const uint8_t *
		other; /* NULL: any stateid of that client and user which may write, as COMMIT has it */
	uint32_t seqid;
	const uint8_t *handle;
	uint32_t handle_length;
	uint64_t client;
	uint32_t uid;
	bool is_write;
};

/* Grants a duplicate of fd. Returns 0; -EEXIST: there is a grant of that stateid; -EINVAL: the handle is too long, or
 * it is no regular file; or another error of the system. */
int ldma_opens_grant(struct ldma_opens *opens, const uint8_t *other,
		     struct ldma_grant_access access, const uint8_t *handle, uint32_t handle_length,
		     int fd, uint64_t client, uint32_t uid);

/* Change or revoke a grant; return whether there is one. */
bool ldma_opens_update(struct ldma_opens *opens, const uint8_t *other,
		       struct ldma_grant_access access);
bool ldma_opens_revoke(struct ldma_opens *opens, const uint8_t *other);

/* Returns a grant with a reference that the caller puts, or NULL. */
struct ldma_grant *ldma_opens_find(struct ldma_opens *opens, const struct ldma_open_key *key);
void ldma_grant_put(struct ldma_grant *grant);

/* Revokes all. */
void ldma_opens_clear(struct ldma_opens *opens);

#endif
