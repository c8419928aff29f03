/* SPDX-License-Identifier: BSD-2-Clause */
/* Declares what the files of the pager share: the pager of the process, its listeners and its watched regions. */
#ifndef LDMA_PAGER_INTERNAL_H
#define LDMA_PAGER_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "base/wake.h"
#include "memory/hooks.h"
#include "memory/looks.h"
#include "memory/pager.h"
#include "memory/userfault.h"

struct ldma_listener {
	struct ldma_pager *pager;
	struct ldma_listener *next;
	const struct ldma_hooks *hooks;
	void *arg;
	uintptr_t start, end;                /* whole pages */
	uint64_t period_asked_ns, period_ns; /* 0: nobody looks for it */
	bool is_device;
	bool is_released; /* has been told so, and hears nothing more */
};

/* A region whose memory is watched. */
struct ldma_watched {
	struct ldma_paged paged;
	struct ldma_listener listener;
	uint32_t users; /* its owner, and threads that work for it */
	bool is_closed;
};

struct ldma_pager {
	struct ldma_paging paging;
	struct ldma_userfault userfault;
	/* The gate guards everything below and the tables of all regions: a page may be in several. */
	pthread_mutex_t gate;
	pthread_cond_t has_fault, may_look;
	struct ldma_listener *listeners; /* those of devices first */
	uint64_t events;                 /* told so far */
	struct ldma_looks looks;
	bool has_looker, is_stopping, is_forked;
	uint32_t users; /* the process, the threads and the listeners */
	int wake_fd;    /* wakes the watcher: the pager stops, or the process has forked */
	pid_t pid;
};

/* The threads. */
void *ldma_pager_watch(void *pager);
void *ldma_pager_fill(void *pager);
void *ldma_pager_look(void *pager);
int ldma_pager_start_thread(struct ldma_pager *pager, void *(*run)(void *));

/* Looks at the blocks of the range, in any thread that holds neither the gate nor the mutex of looks. */
void ldma_pager_apply_told(struct ldma_pager *pager); /* with that mutex */
void ldma_pager_look_at(struct ldma_pager *pager, uintptr_t start, uintptr_t end);

/* Locks the process's pager, and makes it if there is none. Returns 0 or an errno as ldma_pager_open; in any case
 * ldma_pager_unlock follows. That ends a pager without listeners. */
int ldma_pager_lock(struct ldma_pager **ret);
void ldma_pager_unlock(void);
/* Locks likewise, but makes none: returns NULL if the process has no pager. */
struct ldma_pager *ldma_pager_lock_current(void);

/* Wakes the watcher to tell of a fork; never waits. */
void ldma_pager_note_fork(void);

void ldma_pager_put(struct ldma_pager *pager);
void ldma_pager_unwatch(struct ldma_pager *pager, uintptr_t start, uintptr_t end);

/* Of the list; called in the gate. */
void ldma_listener_add(struct ldma_listener *listener);
void ldma_listener_remove(struct ldma_listener *listener);
void ldma_listener_release(struct ldma_listener *listener, enum ldma_cause cause);
/* Numbers the event and tells it to all listeners that it touches. */
void ldma_listeners_tell(struct ldma_pager *pager, struct ldma_memory_event event);

/* Hold and release a region for a thread that works for it outside of the gate, where it may be closed meanwhile.
 * ldma_watched_put frees memory: it may not be called in the gate. */
void ldma_watched_get(struct ldma_watched *watched);
void ldma_watched_put(struct ldma_watched *watched);

/* What a region does when it hears of an event. */
extern const struct ldma_hooks ldma_device_hooks;

/* Brings in the pages of a fault. Returns 0 or a negative errno; *ret_filled is how many it brought in. */
int ldma_fault_populate(const struct ldma_fault *fault, uint32_t *ret_filled);

/* Returns an eventfd, or a negative errno. */
int ldma_wake_descriptor(void);

#endif
