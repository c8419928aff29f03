/* SPDX-License-Identifier: BSD-2-Clause */
/* Long-term pins of the kernel (FOLL_PIN | FOLL_LONGTERM), which keep memory where it is. The process gets them without
 * privilege by registering the memory as buffers of an io_uring that is used for nothing else. It has one ring, and
 * another when its table is full. Pinned memory shows as VmPin, and counts towards RLIMIT_MEMLOCK of all processes of
 * the user together, unless the process has CAP_IPC_LOCK. The pins end with the process, however it ends. Any thread
 * may call these functions.
 *
 * A child of fork has no pins. It closes the rings that it inherits, which would otherwise outlive its parent.
 */
#ifndef LDMA_PIN_H
#define LDMA_PIN_H

#include <stddef.h>
#include <stdint.h>

#define LDMA_PIN_MAX (UINT64_C(1) << 30) /* the kernel takes no longer buffer */

struct ldma_pin_ring;

/* One range that is pinned. */
struct ldma_pin {
	struct ldma_pin_ring *ring; /* NULL: nothing is pinned */
	uint32_t slot;
};

/* Pins length bytes at memory, of whole pages, and brings in those that are absent. Returns 0 or a negative errno.
 * -EPERM, -ENOSYS, -EINVAL: this process or kernel has no such io_uring; -EMFILE, -ENFILE: no descriptor for it is
 * left; -ENOMEM: the limit is reached, or there is no memory; -EFAULT, -EOPNOTSUPP: that memory cannot be pinned for
 * long (not mapped, not writable, or a file's). */
int ldma_pin_add(void *memory, size_t length, struct ldma_pin *ret);

/* Unpins the range. The second call, and a call in a child of the process that pinned it, have no effect. */
void ldma_pin_remove(struct ldma_pin *pin);

#endif
