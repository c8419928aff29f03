/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/userfault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The headers of some systems are older than their kernels: */
#ifndef UFFD_USER_MODE_ONLY /* Linux 5.11 */
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED /* 6.4 */
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC /* 6.7 */
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef PAGEMAP_SCAN /* 6.7 */
#define PAGE_IS_WRITTEN (1 << 1)
#define PM_SCAN_WP_MATCHING (1 << 0)
struct pm_scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#endif

#define FEATURES                                                                                   \
	(UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |         \
	 UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC)
#define MAX_EVENTS 16

/* Events of forks are not asked for: the kernel itself removes the registration from the child, while with events
 * fork() would wait for the watcher with whatever its handlers have locked. */
static int agree(int fd)
{
	struct uffdio_api api = {.api = UFFD_API, .features = FEATURES};

	if (!ioctl(fd, UFFDIO_API, &api))
		return 0;
	return errno == EINVAL ? -ENOSYS : -errno;
}

int ldma_userfault_open(struct ldma_userfault *userfault)
{
	int error;

	*userfault = (struct ldma_userfault){-1, -1};
	userfault->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (userfault->fd < 0)
		return errno == EINVAL ? -ENOSYS : -errno;
	error = agree(userfault->fd);
	userfault->pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (userfault->pagemap_fd < 0)
		userfault->pagemap_fd = -errno; /* e.g. the process has changed its user */
	if (error)
		ldma_userfault_close(userfault);
	return error;
}

void ldma_userfault_close(struct ldma_userfault *userfault)
{
	if (userfault->fd >= 0)
		close(userfault->fd);
	if (userfault->pagemap_fd >= 0)
		close(userfault->pagemap_fd);
	*userfault = (struct ldma_userfault){-1, -1};
}

int ldma_userfault_register(struct ldma_userfault *userfault, uintptr_t start, uintptr_t end)
{
	struct uffdio_register range = {.range = {.start = start, .len = end - start},
					.mode = UFFDIO_REGISTER_MODE_WP};

	if (!ioctl(userfault->fd, UFFDIO_REGISTER, &range))
		return 0;
	switch (errno) {
	case EPERM: /* means a file; not that the process may not have a userfaultfd */
		return -EACCES;
	case ENOMEM: /* means a range with nothing in it */
		return -EINVAL;
	}
	return -errno;
}

/* Errors are ignored: what has been unmapped meanwhile is not registered any more. */
void ldma_userfault_unregister(struct ldma_userfault *userfault, uintptr_t start, uintptr_t end)
{
	struct uffdio_range range = {.start = start, .len = end - start};

	ioctl(userfault->fd, UFFDIO_UNREGISTER, &range);
}

static bool translate(const struct uffd_msg *message, struct ldma_userfault_event *ret)
{
	switch (message->event) {
	case UFFD_EVENT_REMOVE:
	case UFFD_EVENT_UNMAP:
		*ret = (struct ldma_userfault_event){
			.kind = message->event == UFFD_EVENT_REMOVE ? LDMA_USERFAULT_REMOVE
								    : LDMA_USERFAULT_UNMAP,
			.start = message->arg.remove.start,
			.end = message->arg.remove.end,
		};
		return true;
	case UFFD_EVENT_REMAP:
		*ret = (struct ldma_userfault_event){
			.kind = LDMA_USERFAULT_REMAP,
			.start = message->arg.remap.from,
			.end = message->arg.remap.from + message->arg.remap.len,
			.to = message->arg.remap.to,
		};
		return true;
	}
	return false;
}

int ldma_userfault_read(struct ldma_userfault *userfault, struct ldma_userfault_event *ret,
			uint32_t count)
{
	struct uffd_msg messages[MAX_EVENTS];
	size_t size = (count < MAX_EVENTS ? count : MAX_EVENTS) * sizeof(messages[0]);
	ssize_t length = read(userfault->fd, messages, size);
	int found = 0;

	for (ssize_t i = 0; i < length / (ssize_t)sizeof(messages[0]); i++)
		found += translate(&messages[i], &ret[found]);
	return found;
}

long ldma_userfault_written(struct ldma_userfault *userfault, uintptr_t start, uintptr_t end,
			    struct ldma_written *ret, uint32_t count, uintptr_t *ret_end)
{
	struct pm_scan_arg scan = {
		.size = sizeof(scan),
		.flags = PM_SCAN_WP_MATCHING,
		.start = start,
		.end = end,
		.vec = (uintptr_t)ret,
		.vec_len = count,
		.category_mask = PAGE_IS_WRITTEN,
		.return_mask = PAGE_IS_WRITTEN,
	};
	long found;

	if (userfault->pagemap_fd < 0)
		return userfault->pagemap_fd;
	found = ioctl(userfault->pagemap_fd, PAGEMAP_SCAN, &scan);
	*ret_end = found < 0 ? start : scan.walk_end;
	return found < 0 ? -errno : found;
}
