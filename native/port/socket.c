/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/socket.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/packet.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define ECN_CAPABLE 3 /* either bit of RFC 3168 */

void ldma_address_to_socket(const struct ldma_address *address, struct sockaddr_storage *ret)
{
	if (address->ip_version == 4) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)ret;

		*v4 = (struct sockaddr_in){.sin_family = AF_INET,
					   .sin_port = htons(LDMA_ROCE2_PORT)};
		memcpy(&v4->sin_addr, address->bytes, 4);
	} else {
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

		*v6 = (struct sockaddr_in6){.sin6_family = AF_INET6,
					    .sin6_port = htons(LDMA_ROCE2_PORT),
					    .sin6_scope_id = address->scope};
		memcpy(&v6->sin6_addr, address->bytes, 16);
	}
}

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

void ldma_socket_set_buffer(int fd, int forced, int option)
{
	if (set(fd, SOL_SOCKET, forced, LDMA_SOCKET_BUFFER_BYTES))
		set(fd, SOL_SOCKET, option, LDMA_SOCKET_BUFFER_BYTES);
}

uint32_t ldma_socket_drops(int fd)
{
	uint32_t info[SK_MEMINFO_VARS] = {0};
	socklen_t size = sizeof(info);

	getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size);
	return info[SK_MEMINFO_DROPS];
}

/* Sets up a socket that never fragments and is not connected: then an IPv4 packet has the ID 0 and the ICRC can be
 * computed. */
static int set_up(int fd, int ip_version, bool shares)
{
	bool is_v4 = ip_version == 4;
	int level = is_v4 ? IPPROTO_IP : IPPROTO_IPV6;

	if (set(fd, level, is_v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, IP_PMTUDISC_DO))
		return -errno;
	/* The kernel's rxe sends no UDP checksum over IPv6 either: the ICRC takes its place. */
	if (!is_v4 && (set(fd, level, IPV6_V6ONLY, 1) || set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)))
		return -errno;
	if (shares && set(fd, SOL_SOCKET, SO_REUSEPORT, 1))
		return -errno;
	set(fd, IPPROTO_UDP, UDP_GRO, 1); /* without it packets come one by one */
	ldma_socket_set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF);
	ldma_socket_set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF);
	return 0;
}

/* Makes the system drop what comes; without a socket it would send errors to the sender. UDP_GRO stays on, so that a
 * train still comes as one packet. */
static int deafen(int fd)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = {1, &nothing};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? -errno : 0;
}

int ldma_socket_open(struct ldma_socket *s, const struct ldma_address *local, bool shares,
		     bool is_deaf)
{
	struct sockaddr_storage address;
	int error;

	*s = (struct ldma_socket){.local = *local, .has_gso = true};
	s->fd = socket(local->ip_version == 4 ? AF_INET : AF_INET6,
		       SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->fd < 0)
		return -errno;
	error = set_up(s->fd, local->ip_version, shares);
	if (!error && is_deaf)
		error = deafen(s->fd);
	ldma_address_to_socket(local, &address);
	if (!error && bind(s->fd, (struct sockaddr *)&address, ldma_address_bytes(local)))
		error = -errno;
	if (error) {
		close(s->fd);
		s->fd = -1;
	}
	return error;
}

static void read_control(struct msghdr *message, struct ldma_arrival *ret)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		int value;

		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
			memcpy(&value, CMSG_DATA(c), sizeof(value));
			ret->segment = (uint32_t)value;
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
			ret->tos = *CMSG_DATA(c);
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
			memcpy(&value, CMSG_DATA(c), sizeof(value));
			ret->tos = (uint8_t)value;
		}
	}
}

int ldma_socket_receive(struct ldma_socket *s, uint8_t *buf, struct ldma_arrival *ret)
{
	union {
		char bytes[128];
		struct cmsghdr align;
	} control;
	struct sockaddr_storage from;
	struct iovec iov = {buf, 65536};
	struct msghdr message = {
		.msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t length = recvmsg(s->fd, &message, MSG_DONTWAIT);

	if (length < 0)
		return errno == EAGAIN ? 0 : -errno;
	*ret = (struct ldma_arrival){
		.data = buf,
		.length = (uint32_t)length,
		.segment = (uint32_t)length,
		.from.ip_version = s->local.ip_version,
	};
	read_control(&message, ret);
	if (from.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)&from;

		memcpy(ret->from.bytes, &v4->sin_addr, 4);
		ret->port = ntohs(v4->sin_port);
	} else {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&from;

		memcpy(ret->from.bytes, &v6->sin6_addr, 16);
		ret->port = ntohs(v6->sin6_port);
	}
	return 1;
}

/* Sets the type of service for the whole socket: it seldom changes, and a control message would cost every packet. To
 * be told that of every arrival costs as much: only a socket that sends packets which can be marked for congestion asks
 * for it. */
static void set_tos(struct ldma_socket *s, uint8_t tos)
{
	bool is_v4 = s->local.ip_version == 4;
	int level = is_v4 ? IPPROTO_IP : IPPROTO_IPV6;

	if (tos == s->tos)
		return;
	set(s->fd, level, is_v4 ? IP_TOS : IPV6_TCLASS, tos);
	if (tos & ECN_CAPABLE)
		set(s->fd, level, is_v4 ? IP_RECVTOS : IPV6_RECVTCLASS, 1);
	s->tos = tos;
}

static ssize_t send_train(int fd, struct sockaddr_storage *to, socklen_t to_bytes,
			  struct iovec *packets, uint32_t count, uint16_t segment)
{
	union {
		char bytes[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr align;
	} control = {{0}};
	struct msghdr message = {
		.msg_name = to,
		.msg_namelen = to_bytes,
		.msg_iov = packets,
		.msg_iovlen = count,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(segment)),
					 .cmsg_level = IPPROTO_UDP,
					 .cmsg_type = UDP_SEGMENT};
	memcpy(CMSG_DATA(&control.align), &segment, sizeof(segment));
	return sendmsg(fd, &message, MSG_DONTWAIT);
}

int ldma_socket_send(struct ldma_socket *s, const struct ldma_address *to, uint8_t tos,
		     struct iovec *packets, uint32_t count, uint16_t segment)
{
	socklen_t to_bytes = ldma_address_bytes(to);
	struct sockaddr_storage address;
	ssize_t sent;

	ldma_address_to_socket(to, &address);
	set_tos(s, tos);
	if (count > 1)
		sent = send_train(s->fd, &address, to_bytes, packets, count, segment);
	else /* costs the system less than a message of one part */
		sent = sendto(s->fd, packets->iov_base, packets->iov_len, MSG_DONTWAIT,
			      (struct sockaddr *)&address, to_bytes);
	return sent < 0 ? -errno : 0;
}
