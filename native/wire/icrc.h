/* SPDX-License-Identifier: BSD-2-Clause */
/* The invariant CRC (IBA 7.8.1, A16.5.1, A17.3.3), which covers everything that no switch or router may change. */
#ifndef LDMA_ICRC_H
#define LDMA_ICRC_H

#include <stdint.h>

/* The largest distance from the IP header (or GRH) to the BTH that ldma_icrc takes: IPv6 with 256 bytes of
 * extensions. */
#define LDMA_ICRC_MAX_BTH 304

enum ldma_l3 { LDMA_L3_IPV4, LDMA_L3_IPV6, LDMA_L3_GRH };

/* Returns the ICRC of the packet whose IP header or GRH starts at l3, whose BTH starts at byte bth <= LDMA_ICRC_MAX_BTH
 * and whose last byte before the ICRC is byte end - 1. On the wire the result is stored little-endian. */
uint32_t ldma_icrc(enum ldma_l3 kind, const uint8_t *l3, uint32_t bth, uint32_t end);

#endif
