/* SPDX-License-Identifier: BSD-2-Clause */
/* A port is a device (device/device.h) on a wire: the device behind a socket, with a thread that serves both.
 *
 * A thread that touches the device owns it for that time: ldma_port_lock gives it ownership, ldma_port_unlock sends
 * what has become due and gives ownership back. It changes hands between batches of packets, never within one, so the
 * packet path has no lock. A thread that waits for a completion serves the port itself meanwhile, and the port's own
 * thread stands aside: no wake-up lies between a packet and the thread that waits for it. Any thread may call what is
 * below, without ownership unless said otherwise. */
#ifndef LDMA_PORT_H
#define LDMA_PORT_H

#include "device/device.h"
#include "port/address.h"
#include "port/share.h"

/* How packets come in; they always leave through a UDP socket. LDMA_PORT_UDP needs no privilege, but a UDP socket hides
 * the IPv4 ID, so that only 16 of the ICRC's 32 bits protect. LDMA_PORT_PACKET (IPv4 only: IPv6 has no ID) verifies
 * all of it; packet_socket.h says what it needs. */
enum ldma_port_kind { LDMA_PORT_AUTO, LDMA_PORT_UDP, LDMA_PORT_PACKET };

struct ldma_port_config {
	struct ldma_device_config
		device; /* without numbers of queue pairs if the address is shared */
	struct ldma_address address;
	uint32_t interface; /* the index of the interface that has the address */
	uint8_t kind;       /* enum ldma_port_kind; AUTO: PACKET if possible */
	uint32_t
		spin_us; /* the longest time the port's thread looks for packets before it sleeps */
	const struct ldma_share *share; /* NULL: the address is the port's alone */
};

struct ldma_port_counters {
	uint64_t received_trains, sent_trains; /* calls that received or sent something */
	uint64_t foreign;                      /* datagrams that are no RoCE */
	uint64_t overruns;                     /* packets or trains that found the socket full */
	uint64_t send_errors;                  /* packets that the system refused */
	uint64_t strays; /* packets for other processes in the port's trains, sent on to them */
	uint64_t sleeps; /* of the thread */
	uint64_t
		busy_ns; /* time in which threads that serve the port had work, and did not only look */
};

struct ldma_port;

/* Opens a port; ldma_port_close ends it. Returns 0, or a negative errno with nothing left open. */
int ldma_port_open(const struct ldma_port_config *config, struct ldma_port **ret);

/* Ends the thread and destroys the device with all in it. No other thread may use the port meanwhile or wait at it. */
void ldma_port_close(struct ldma_port *port);

/* Returns LDMA_PORT_UDP or LDMA_PORT_PACKET. *ret_error becomes the errno that ruled out PACKET where AUTO was asked
 * for and the kind is UDP, else 0. */
enum ldma_port_kind ldma_port_kind(const struct ldma_port *port, int *ret_error);

/* Returns the port's slot among the processes that share the address; 0 if it is the port's alone. */
uint32_t ldma_port_slot(const struct ldma_port *port);

/* Takes ownership of the device: it waits for the end of a batch at most. */
struct ldma_device *ldma_port_lock(struct ldma_port *port);
void ldma_port_unlock(struct ldma_port *port);

/* Create and destroy a completion queue that reports to the port, as ldma_cq_create and ldma_cq_destroy do. Both take
 * the lock. */
struct ldma_cq *ldma_port_create_cq(struct ldma_port *port, uint32_t capacity);
int ldma_port_destroy_cq(struct ldma_port *port, struct ldma_cq *cq);

/* Waits until the queue has a completion: serves the port for spin_ns, then sleeps. Returns 1; 0: timeout_ns has
 * passed; -EINTR: a signal came. */
int ldma_port_wait(struct ldma_port *port, struct ldma_cq *cq, uint64_t spin_ns,
		   uint64_t timeout_ns);

/* Serves the port once, with one train at most: a caller that polls memory sees what came at once. */
void ldma_port_serve(struct ldma_port *port);

/* Returns a descriptor that becomes readable when an armed queue has its event. The caller only polls it; the port
 * clears it in ldma_port_next_event. */
int ldma_port_event_fd(struct ldma_port *port);

/* Returns the next queue whose event came, or NULL. */
struct ldma_cq *ldma_port_next_event(struct ldma_port *port);

struct ldma_port_counters ldma_port_counters(struct ldma_port *port);

/* Returns the path from this port to a peer. */
struct ldma_path ldma_port_path(const struct ldma_port *port, const uint8_t peer[16]);

#endif
