/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>

#include "wire/packet.h"

size_t ldma_packet_error_text(const struct ldma_packet *packet, char *buf, size_t size)
{
	static const char *const texts[] = {"%s%.0u%.0u",
#define X(name, text) [LDMA_PACKET_##name] = text,
					    LDMA_PACKET_ERRORS(X)
#undef X
	};
	char what[160];
	int n;

	if (!size)
		return 0;
	buf[0] = 0;
	if (!packet->error)
		return 0;
	snprintf(what, sizeof(what), texts[packet->error], packet->error_what, packet->error_a,
		 packet->error_b);
	n = snprintf(buf, size, "%s, at byte %u", what, packet->error_at);
	return (size_t)n < size ? (size_t)n : size - 1;
}

const char *ldma_nak_reason(uint8_t syndrome)
{
	switch (syndrome & 0x1f) {
	case 0:
		return "PSN sequence error";
	case 1:
		return "invalid request";
	case 2:
		return "remote access error";
	case 3:
		return "remote operational error";
	case 4:
		return "invalid RD request";
	}
	return "reserved";
}

uint32_t ldma_rnr_timer_us(uint8_t syndrome)
{
	static const uint32_t us[32] = {
		655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,    320,
		480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
		20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	};

	return us[syndrome & 0x1f];
}
