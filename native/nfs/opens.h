/* Who may use which open file: a stateid leads to a descriptor of the server's own.
 *
 * A grant that is revoked is found by nobody any more; its descriptor is closed once those who found it before are done.
 * Any thread may use it. */
#ifndef LDMA_OPENS_H
#define LDMA_OPENS_H

#include <stdbool.h>
#include <stdint.h>

#include "lock.h"

#define LDMA_OTHER_BYTES 12      /* stateid4.other */
#define LDMA_HANDLE_MAX 128      /* NFS4_FHSIZE */
#define LDMA_UID_NONE UINT32_MAX /* of AUTH_NONE */
#define LDMA_OPENS_BUCKETS 16384

/* What a stateid allows; changes under the lock of the table. */
struct ldma_access {
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
	bool cannot_nowait;  /* atomic: the file system turned out not to read that way */
	struct ldma_access access;
	struct ldma_grant *next_other, *next_handle;
};

struct ldma_opens {
	struct ldma_lock lock;
	uint32_t count;
	struct ldma_grant *by_other[LDMA_OPENS_BUCKETS];
	struct ldma_grant *by_handle[LDMA_OPENS_BUCKETS];
};

/* Who asks for which file. seqid: 0 is any. */
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

/* fd is duplicated. 0; -EEXIST: there is a grant of that stateid; -EINVAL: too long a handle, or no regular file;
 * another error of the system's. */
int ldma_opens_grant(struct ldma_opens *opens, const uint8_t *other, struct ldma_access access,
		     const uint8_t *handle, uint32_t handle_length, int fd, uint64_t client,
		     uint32_t uid);

/* Whether there is one. */
bool ldma_opens_update(struct ldma_opens *opens, const uint8_t *other, struct ldma_access access);
bool ldma_opens_revoke(struct ldma_opens *opens, const uint8_t *other);

/* NULL, or a grant with a reference that the caller puts. */
struct ldma_grant *ldma_opens_find(struct ldma_opens *opens, const struct ldma_open_key *key);
void ldma_grant_put(struct ldma_grant *grant);

/* Revokes all. */
void ldma_opens_clear(struct ldma_opens *opens);

#endif
