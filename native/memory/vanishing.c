/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/vanishing.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include "memory/guarded.h"

#ifdef __x86_64__

/* ldma_vanishing_move copies head bytes, then words of eight bytes, then tail bytes; ldma_vanishing_exchange compares
 * and exchanges. They return 0, 1 (exchanged), or -1 after a fault. */
int ldma_vanishing_move(void *to, const void *from, size_t head, size_t words, size_t tail);
int ldma_vanishing_exchange(uint64_t *memory, uint64_t *expected, uint64_t desired);

/* The instructions that may fault, and the place where execution goes on then. */
extern const char ldma_vanishing_head[], ldma_vanishing_words[], ldma_vanishing_tail[];
extern const char ldma_vanishing_swap[], ldma_vanishing_fault[];

__asm__(".pushsection .text\n"
	".hidden ldma_vanishing_move, ldma_vanishing_exchange, ldma_vanishing_head\n"
	".hidden ldma_vanishing_words, ldma_vanishing_tail, ldma_vanishing_swap\n"
	".hidden ldma_vanishing_fault\n"
	".globl ldma_vanishing_move, ldma_vanishing_exchange, ldma_vanishing_head\n"
	".globl ldma_vanishing_words, ldma_vanishing_tail, ldma_vanishing_swap\n"
	".globl ldma_vanishing_fault\n"
	".type ldma_vanishing_move, @function\n"
	"ldma_vanishing_move:\n"
	"	.cfi_startproc\n"
	"	mov	%rcx, %rax\n"
	"	mov	%rdx, %rcx\n"
	"	jrcxz	1f\n"
	"ldma_vanishing_head:\n"
	"	rep movsb\n"
	"1:	mov	%rax, %rcx\n"
	"	jrcxz	2f\n"
	"ldma_vanishing_words:\n"
	"	rep movsq\n"
	"2:	mov	%r8, %rcx\n"
	"	jrcxz	3f\n"
	"ldma_vanishing_tail:\n"
	"	rep movsb\n"
	"3:	xor	%eax, %eax\n"
	"	ret\n"
	"ldma_vanishing_fault:\n"
	"	mov	$-1, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size ldma_vanishing_move, . - ldma_vanishing_move\n"
	".type ldma_vanishing_exchange, @function\n"
	"ldma_vanishing_exchange:\n"
	"	.cfi_startproc\n"
	"	mov	(%rsi), %rax\n"
	"ldma_vanishing_swap:\n"
	"	lock cmpxchg %rdx, (%rdi)\n"
	"	mov	%rax, (%rsi)\n"
	"	sete	%al\n"
	"	movzbl	%al, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size ldma_vanishing_exchange, . - ldma_vanishing_exchange\n"
	".popsection\n");

#define VERIFY_INTERVAL 64

static const int signals[] = {SIGSEGV, SIGBUS};
static struct sigaction before[2];
static bool is_installed;

/* Handles a signal that no copy caused as if this handler were not installed. */
static void hand_on(int number, siginfo_t *info, void *context)
{
	const struct sigaction *next = &before[number == SIGBUS];

	if (next->sa_flags & SA_SIGINFO) {
		next->sa_sigaction(number, info, context);
	} else if (next->sa_handler == SIG_DFL || next->sa_handler == SIG_IGN) {
		/* The instruction faults again, and the process ends as it should. */
		signal(number, SIG_DFL);
		if (info->si_code <= 0) /* it was sent: no instruction faults again */
			raise(number);
	} else {
		next->sa_handler(number);
	}
}

static void handle(int number, siginfo_t *info, void *context)
{
	const char *const faulting[] = {ldma_vanishing_head, ldma_vanishing_words,
					ldma_vanishing_tail, ldma_vanishing_swap};
	greg_t *at = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	for (int i = 0; i < 4; i++) {
		if (*at == (greg_t)(uintptr_t)faulting[i]) {
			*at = (greg_t)(uintptr_t)ldma_vanishing_fault;
			return;
		}
	}
	hand_on(number, info, context);
}

static void install(void)
{
	struct sigaction action = {.sa_sigaction = handle,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};

	sigemptyset(&action.sa_mask);
	for (int i = 0; i < 2; i++) {
		sigaction(signals[i], NULL, &before[i]); /* before the new handler can be called */
		sigaction(signals[i], &action, NULL);
	}
	__atomic_store_n(&is_installed, true, __ATOMIC_RELEASE);
}

void ldma_vanishing_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
	ldma_vanishing_verify();
}

void ldma_vanishing_verify(void)
{
	struct sigaction now;

	for (int i = 0; i < 2; i++)
		if (sigaction(signals[i], NULL, &now) || !(now.sa_flags & SA_SIGINFO) ||
		    now.sa_sigaction != handle)
			__atomic_store_n(&is_installed, false, __ATOMIC_RELAXED);
}

/* Returns whether a fault in this thread comes to the handler. It asks the system only now and then: asking costs more
 * than copying. */
static bool is_guarded(void)
{
	static __thread uint32_t copies;
	static __thread bool is_deaf;

	if (!(copies++ % VERIFY_INTERVAL)) {
		sigset_t blocked;

		pthread_sigmask(SIG_BLOCK, NULL, &blocked);
		is_deaf = sigismember(&blocked, SIGSEGV) || sigismember(&blocked, SIGBUS);
		ldma_vanishing_verify();
	}
	return !is_deaf && __atomic_load_n(&is_installed, __ATOMIC_ACQUIRE);
}

/* Copies words that are aligned in the program's memory whole. Otherwise an interrupt could come after any byte, and
 * the page be taken away meanwhile. */
static bool move(void *to, const void *from, const void *memory, size_t length)
{
	size_t head = -(uintptr_t)memory & 7;

	if (head > length)
		head = length;
	length -= head;
	return !ldma_vanishing_move(to, from, head, length / 8, length % 8);
}

bool ldma_vanishing_load(void *buf, const void *memory, size_t length)
{
	return is_guarded() ? move(buf, memory, memory, length)
			    : ldma_guarded_copy(buf, memory, length);
}

bool ldma_vanishing_store(void *memory, const void *buf, size_t length)
{
	return is_guarded() ? move(memory, buf, memory, length)
			    : ldma_guarded_copy(memory, buf, length);
}

bool ldma_vanishing_compare_exchange(uint64_t *memory, uint64_t *expected, uint64_t desired,
				     bool *ret_done)
{
	uint64_t value;
	int result;

	/* The kernel has no such call. Without the handler, a copy by the kernel at least tells whether the page is
	 * there. */
	if (!is_guarded() && !ldma_guarded_copy(&value, memory, sizeof(value)))
		return false;
	result = ldma_vanishing_exchange(memory, expected, desired);
	*ret_done = result == 1;
	return result >= 0;
}

#else

void ldma_vanishing_start(void)
{
}

void ldma_vanishing_verify(void)
{
}

bool ldma_vanishing_load(void *buf, const void *memory, size_t length)
{
	return ldma_guarded_copy(buf, memory, length);
}

bool ldma_vanishing_store(void *memory, const void *buf, size_t length)
{
	return ldma_guarded_copy(memory, buf, length);
}

bool ldma_vanishing_compare_exchange(uint64_t *memory, uint64_t *expected, uint64_t desired,
				     bool *ret_done)
{
	(void)memory, (void)expected, (void)desired, (void)ret_done;
	return false;
}

#endif
