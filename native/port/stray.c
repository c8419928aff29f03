/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/stray.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/packet.h"

int ldma_stray_open(int ip_version)
{
	int fd = socket(ip_version == 4 ? AF_INET : AF_INET6,
			SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_RAW);

	return fd < 0 ? -errno : fd;
}

static void send_v4(int fd, const uint8_t *l3, uint32_t length)
{
	struct sockaddr_in to = {.sin_family = AF_INET};

	memcpy(&to.sin_addr, l3 + 16, sizeof(to.sin_addr));
	sendto(fd, l3, length, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
}

static void send_v6(int fd, const uint8_t *l3, uint32_t length)
{
	struct sockaddr_in6 to = {.sin6_family = AF_INET6};

	memcpy(&to.sin6_addr, l3 + 24, sizeof(to.sin6_addr));
	sendto(fd, l3, length, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
}

void ldma_stray_send(int fd, uint8_t *l3, uint32_t length)
{
	ldma_packet_set_checksums(l3, length);
	if (l3[0] >> 4 == 4)
		send_v4(fd, l3, length);
	else
		send_v6(fd, l3, length);
}
