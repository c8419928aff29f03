/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/packet_socket.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/bytes.h"
#include "port/socket.h"
#include "wire/packet.h"

#define LOOPBACK 1 /* the index of lo in every network namespace */
#define LOOPBACK_NET 127
#define IP ETH_HLEN /* where the IP header begins */
#define VNET_BYTES sizeof(struct virtio_net_hdr)
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

_Static_assert(VNET_BYTES + IP == LDMA_PACKET_SOCKET_HEADROOM, "both are before the IP header");

#define AD(what) ((uint32_t)SKF_AD_OFF + (what))
#define LOAD(size, at) BPF_STMT(BPF_LD | (size) | BPF_ABS, at)
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
/* Jumps from instruction number at. */
#define ACCEPT(at) (16 - (at) - 1)
#define DROP(at) (17 - (at) - 1)

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) ? -errno : 0;
}

/* Accepts UDP to the RoCE port and the address, but no later fragment of a datagram. It must come through loopback, or
 * through the interface to this host and not from an address of loopback, which no wire may bring. */
static int attach_filter(int fd, const struct ldma_address *local, uint32_t interface)
{
	struct sock_filter code[] = {
		[0] = LOAD(BPF_B, IP + 9),
		[1] = EQUAL(IPPROTO_UDP, 0, DROP(1)),
		[2] = LOAD(BPF_W, IP + 16),
		[3] = EQUAL(get32(local->bytes), 0, DROP(3)),
		[4] = LOAD(BPF_H, IP + 6),
		[5] = BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, DROP(5), 0),
		[6] = BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, IP),
		[7] = BPF_STMT(BPF_LD | BPF_H | BPF_IND, IP + 2),
		[8] = EQUAL(LDMA_ROCE2_PORT, 0, DROP(8)),
		[9] = LOAD(BPF_W, AD(SKF_AD_IFINDEX)),
		[10] = EQUAL(LOOPBACK, ACCEPT(10), 0),
		[11] = EQUAL(interface, 0, DROP(11)),
		[12] = LOAD(BPF_W, AD(SKF_AD_PKTTYPE)),
		[13] = EQUAL(PACKET_HOST, 0, DROP(13)),
		[14] = LOAD(BPF_B, IP + 12),
		[15] = EQUAL(LOOPBACK_NET, DROP(15), 0),
		[16] = BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		[17] = BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)))
		return -errno;
	return 0;
}

static bool has_ethernet_headers(int fd, uint32_t interface)
{
	struct ifreq request = {0};

	if (!if_indextoname(interface, request.ifr_name) || ioctl(fd, SIOCGIFHWADDR, &request))
		return false;
	return request.ifr_hwaddr.sa_family == ARPHRD_ETHER ||
	       request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK;
}

static bool is_kernel_new_enough(void)
{
	struct utsname name;
	unsigned int major = 0, minor = 0;

	uname(&name);
	return sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 10));
}

int ldma_packet_socket_open(const struct ldma_address *local, uint32_t interface)
{
	int fd, error;

	if (local->ip_version != 4 || !is_kernel_new_enough())
		return -EOPNOTSUPP;
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	error = has_ethernet_headers(fd, interface) ? set(fd, SOL_PACKET, PACKET_VNET_HDR, 1)
						    : -EOPNOTSUPP;
	if (error) {
		close(fd);
		return error;
	}
	ldma_socket_set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF);
	return fd;
}

int ldma_packet_socket_start(int fd, const struct ldma_address *local, uint32_t interface,
			     int program)
{
	/* The socket is bound to no interface: bridges and bonds have had their turn by then, and each packet comes
	 * once. */
	struct sockaddr_ll where = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP)};
	int error = program >= 0 ? set(fd, SOL_SOCKET, SO_ATTACH_BPF, program)
				 : attach_filter(fd, local, interface);

	if (!error && bind(fd, (struct sockaddr *)&where, sizeof(where)))
		error = -errno;
	return error;
}

int ldma_packet_socket_receive(int fd, uint8_t *buf, struct ldma_received *ret)
{
	uint8_t *start = buf - LDMA_PACKET_SOCKET_HEADROOM;
	ssize_t length = recv(fd, start, LDMA_PACKET_SOCKET_HEADROOM + 65536, MSG_DONTWAIT);
	struct virtio_net_hdr header;

	if (length < 0)
		return errno == EAGAIN ? 0 : -errno;
	if (length < LDMA_PACKET_SOCKET_HEADROOM)
		return -EBADMSG;
	memcpy(&header, start, sizeof(header));
	*ret = (struct ldma_received){
		.l3 = buf,
		.length = (uint32_t)length - LDMA_PACKET_SOCKET_HEADROOM,
		.segment = header.gso_type == VIRTIO_NET_HDR_GSO_UDP_L4 ? header.gso_size : 0,
	};
	return 1;
}
