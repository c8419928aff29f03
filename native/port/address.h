/* SPDX-License-Identifier: BSD-2-Clause */
/* An IP address in the form of struct ldma_path: IPv4 in the first four bytes, the rest 0. */
#ifndef LDMA_ADDRESS_H
#define LDMA_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct ldma_address {
	uint8_t bytes[16];
	uint32_t scope;     /* the interface of a link-local address, else 0 */
	uint8_t ip_version; /* 4 or 6 */
};

static inline bool ldma_address_equals(const struct ldma_address *a, const struct ldma_address *b)
{
	return a->ip_version == b->ip_version && !memcmp(a->bytes, b->bytes, sizeof(a->bytes)) &&
	       a->scope == b->scope;
}

static inline socklen_t ldma_address_bytes(const struct ldma_address *address)
{
	return address->ip_version == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* Fills ret with the address and RoCE's UDP port. */
void ldma_address_to_socket(const struct ldma_address *address, struct sockaddr_storage *ret);

#endif
