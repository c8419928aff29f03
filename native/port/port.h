/* A device on a wire: the core of core/device.h behind a socket, with a thread that serves it.
 *
 * Whoever touches the device owns it for that time: ldma_port_lock gives it, ldma_port_unlock sends what has become due
 * and gives it back. Ownership changes hands between batches of packets, never within one, so the packet path has no
 * lock. A thread that waits for a completion serves the port itself meanwhile and the port's own thread stands aside:
 * no wake-up lies between a packet and who waits for it. */
#ifndef LDMA_PORT_H
#define LDMA_PORT_H

#include "address.h"
#include "device.h"
#include "share.h"

/* How packets come in; they always leave through a UDP socket. LDMA_PORT_UDP needs no privilege, but a UDP socket keeps
 * the IPv4 ID to itself, so that 16 of the ICRC's 32 bits protect. LDMA_PORT_PACKET (IPv4 only: IPv6 has no ID) verifies
 * all of it; packet_socket.h says what it needs. */
enum ldma_port_kind { LDMA_PORT_AUTO, LDMA_PORT_UDP, LDMA_PORT_PACKET };

struct ldma_port_config {
	struct ldma_device_config
		device; /* without numbers of queue pairs if the address is shared */
	struct ldma_address address;
	uint32_t interface; /* the index of the one that has the address */
	uint8_t kind;       /* enum ldma_port_kind; AUTO: PACKET if possible */
	uint32_t
		spin_us; /* how long at most the port's thread looks for packets before it sleeps */
	const struct ldma_share *share; /* NULL: the address is the port's alone */
};

struct ldma_port_counters {
	uint64_t received_trains, sent_trains; /* calls that received or sent something */
	uint64_t foreign;                      /* datagrams that are no RoCE */
	uint64_t overruns;                     /* packets or trains that found the socket full */
	uint64_t send_errors;                  /* packets that the system refused */
	uint64_t strays; /* packets of other processes that came with ours and were sent on */
	uint64_t sleeps; /* of the thread */
	uint64_t
		busy_ns; /* that those who serve the port had something to do, and did not only look */
};

struct ldma_port;

/* 0, or a negative errno and nothing left open. */
int ldma_port_open(const struct ldma_port_config *config, struct ldma_port **ret);

/* Ends the thread and destroys the device with all in it. Nobody may use the port meanwhile or wait at it. */
void ldma_port_close(struct ldma_port *port);

/* LDMA_PORT_UDP or LDMA_PORT_PACKET; for UDP, where AUTO was asked for, also the errno that spoke against PACKET (else 0). */
enum ldma_port_kind ldma_port_kind(const struct ldma_port *port, int *ret_error);

/* Among those who share the address; 0 if it is the port's alone. */
uint32_t ldma_port_slot(const struct ldma_port *port);

/* Takes ownership of the device: waits for the end of a batch at most. */
struct ldma_device *ldma_port_lock(struct ldma_port *port);
void ldma_port_unlock(struct ldma_port *port);

/* Completion queues that report here. The rules of ldma_cq_create and ldma_cq_destroy; both take the lock. */
struct ldma_cq *ldma_port_create_cq(struct ldma_port *port, uint32_t capacity);
int ldma_port_destroy_cq(struct ldma_port *port, struct ldma_cq *cq);

/* Waits until the queue has a completion: serves the port for spin_ns, then sleeps. 1; 0: timeout_ns went by;
 * -EINTR: a signal came. */
int ldma_port_wait(struct ldma_port *port, struct ldma_cq *cq, uint64_t spin_ns,
		   uint64_t timeout_ns);

/* Serves the port once, with one train at most: who looks at memory sees it at once. */
void ldma_port_serve(struct ldma_port *port);

/* A descriptor that becomes readable when an armed queue has its event (poll only; the port clears it in
 * ldma_port_next_event). */
int ldma_port_event_fd(struct ldma_port *port);

/* The next queue whose event came, or NULL. */
struct ldma_cq *ldma_port_next_event(struct ldma_port *port);

struct ldma_port_counters ldma_port_counters(struct ldma_port *port);

/* The way from this port to a peer. */
struct ldma_path ldma_port_path(const struct ldma_port *port, const uint8_t peer[16]);

#endif
