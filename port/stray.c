#include "stray.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "bytes.h"

#define IPV6_BYTES 40
#define IPV6_SOURCE 8 /* where both addresses are */

int ldma_stray_open(int ip_version)
{
	int fd = socket(ip_version == 4 ? AF_INET : AF_INET6,
			SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_RAW);

	return fd < 0 ? -errno : fd;
}

static uint32_t add(uint32_t sum, const uint8_t *p, uint32_t length)
{
	for (; length > 1; p += 2, length -= 2)
		sum += get16(p);
	return length ? sum + ((uint32_t)*p << 8) : sum;
}

/* RFC 8200 8.1: UDP over IPv6 has a checksum. */
static uint16_t checksum_v6(const uint8_t *l3, uint32_t length)
{
	uint32_t sum = length - IPV6_BYTES + IPPROTO_UDP;

	sum = add(sum, l3 + IPV6_SOURCE, length - IPV6_SOURCE);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff ? 0xffff : (uint16_t)~sum;
}

static void send_v4(int fd, uint8_t *l3, uint32_t length)
{
	struct sockaddr_in to = {.sin_family = AF_INET};

	memcpy(&to.sin_addr, l3 + 16, sizeof(to.sin_addr));
	put16(l3 + (l3[0] & 15) * 4 + 6, 0); /* none; that of IP is the kernel's to compute */
	sendto(fd, l3, length, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
}

static void send_v6(int fd, uint8_t *l3, uint32_t length)
{
	struct sockaddr_in6 to = {.sin6_family = AF_INET6};

	memcpy(&to.sin6_addr, l3 + 24, sizeof(to.sin6_addr));
	put16(l3 + IPV6_BYTES + 6, 0);
	put16(l3 + IPV6_BYTES + 6, checksum_v6(l3, length));
	sendto(fd, l3, length, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
}

void ldma_stray_send(int fd, uint8_t *l3, uint32_t length)
{
	if (l3[0] >> 4 == 4)
		send_v4(fd, l3, length);
	else
		send_v6(fd, l3, length);
}
