/* SPDX-License-Identifier: BSD-3-Clause
 * The handler of SIGSEGV and SIGBUS behind guard.h, and the handlers that were installed before it.
 *
 *   G3  A handler of the program is called as the kernel would: with its arguments, its mask, and
 *       the registers of the fault.  SIG_DFL ends the process with the instruction that faulted.
 *   G4  Handlers that call the one before them may call this one, or raise the signal again.  Each
 *       is called once for one fault, from the latest to the first. */
#define _GNU_SOURCE
#include "base/guard.h"

#ifdef NUPA_GUARD_TABLE

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* G1.  The linker defines where the table of this module begins and ends; weak, as a module without
 * guarded accesses has no table. */
struct entry {
	int32_t from, to, fixup; /* each from its own place on */
};

extern const struct entry table_begin[] __asm__("__start_nupa_guards")
    __attribute__((weak, visibility("hidden")));
extern const struct entry table_end[] __asm__("__stop_nupa_guards")
    __attribute__((weak, visibility("hidden")));

#if defined(__x86_64__)
#define PROGRAM_COUNTER(context) ((context)->uc_mcontext.gregs[REG_RIP])
typedef greg_t program_counter;
#else
#define PROGRAM_COUNTER(context) ((context)->uc_mcontext.pc)
typedef uint64_t program_counter;
#endif

static uintptr_t place(const int32_t *at)
{
	return (uintptr_t)at + (uintptr_t)(intptr_t)*at;
}

/* The address to resume at; 0: not a guard's. */
static uintptr_t fixup_of(uintptr_t at)
{
	for (const struct entry *entry = table_begin; entry != table_end; entry++)
		if (at >= place(&entry->from) && at < place(&entry->to))
			return place(&entry->fixup);
	return 0;
}

/* --- handlers of the program --------------------------------------------------------- */

#define HANDLERS_MAX 16u

/* Of one signal: the handlers found each time that this one was installed, the first one first. */
static struct handlers {
	uint32_t n;
	struct sigaction action[HANDLERS_MAX];
} handlers[2];

static pthread_mutex_t handlers_lock = PTHREAD_MUTEX_INITIALIZER;

static struct handlers *handlers_of(int signal_number)
{
	return &handlers[signal_number == SIGBUS];
}

/* The fault that this thread's handlers handle. */
struct fault {
	const void *context;
	const void *frame; /* of our handler, below which the others are */
	int signal_number;
	uint32_t left; /* handlers that were not called yet */
};

static _Thread_local struct fault current __attribute__((tls_model("initial-exec")));

/* In siginfo_t.si_errno: all handlers of a module were called.  Another module's continues. */
#define NOBODY 0x4e555041

static void end_process(int signal_number, siginfo_t *info)
{
	struct sigaction action = { .sa_handler = SIG_DFL };

	sigaction(signal_number, &action, NULL);
	if (info->si_code <= 0) /* sent, so it does not come again by itself */
		syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), signal_number,
			info);
}

/* G3 */
static void call(struct sigaction *of, int signal_number, siginfo_t *info, void *context)
{
	struct sigaction action = *of;

	if ((unsigned int)action.sa_flags & SA_RESETHAND)
		*of = (struct sigaction){ .sa_handler = SIG_DFL };
	if (!(action.sa_flags & SA_NODEFER))
		sigaddset(&action.sa_mask, signal_number);
	pthread_sigmask(SIG_BLOCK, &action.sa_mask, NULL); /* the kernel takes it back */
	if (action.sa_flags & SA_SIGINFO)
		action.sa_sigaction(signal_number, info, context);
	else
		action.sa_handler(signal_number);
}

static bool is_function(const struct sigaction *action)
{
	return action->sa_flags & SA_SIGINFO ||
	       (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

/* False: the fault was a guard's, whose handlers were all called. */
static bool handle(struct sigaction *action, int signal_number, siginfo_t *info, void *context)
{
	if (is_function(action)) {
		call(action, signal_number, info, context);
		if (info->si_errno != NOBODY)
			return true;
		info->si_errno = 0;
		return false;
	}
	if (action->sa_handler == SIG_DFL || info->si_code > 0)
		end_process(signal_number, info);
	return true;
}

/* Whether one of those handlers calls, or raises the signal again. */
static bool goes_on(int signal_number, const siginfo_t *info, const void *context,
		    const void *frame)
{
	return current.frame && frame < current.frame && current.signal_number == signal_number &&
	       (context == current.context || info->si_code <= 0);
}

/* G4 */
static void pass_on(int signal_number, siginfo_t *info, void *context, const void *frame)
{
	struct handlers *before = handlers_of(signal_number);
	bool inner = goes_on(signal_number, info, context, frame);

	if (!inner)
		current =
		    (struct fault){ context, frame, signal_number, nupa_load_acquire(&before->n) };
	while (current.left) {
		if (handle(&before->action[--current.left], signal_number, info, context)) {
			if (!inner)
				current.frame = NULL;
			return;
		}
	}
	if (inner) {
		info->si_errno = NOBODY;
		return;
	}
	current.frame = NULL;
	end_process(signal_number, info);
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
	ucontext_t *registers = context;
	uintptr_t fixup = 0;
	int error = errno;

	if (info->si_code > 0) /* of the kernel: not sent */
		fixup = fixup_of((uintptr_t)PROGRAM_COUNTER(registers));
	if (fixup)
		PROGRAM_COUNTER(registers) = (program_counter)fixup;
	else
		pass_on(signal_number, info, context, __builtin_frame_address(0));
	errno = error;
}

/* --- ours --------------------------------------------------------------------------- */

static bool is_ours(const struct sigaction *action)
{
	return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_fault;
}

/* A handler that was there before and is again has replaced those above it. */
static uint32_t place_of(const struct handlers *before, const struct sigaction *action)
{
	for (uint32_t i = 0; i < before->n; i++)
		if (before->action[i].sa_sigaction == action->sa_sigaction)
			return i;
	return before->n;
}

static void renew(int signal_number)
{
	struct handlers *before = handlers_of(signal_number);
	struct sigaction ours = { .sa_sigaction = on_fault,
				  .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
	struct sigaction found;
	uint32_t at;

	if (sigaction(signal_number, NULL, &found) || is_ours(&found))
		return;
	pthread_mutex_lock(&handlers_lock);
	if (!sigaction(signal_number, NULL, &found) && !is_ours(&found)) {
		at = place_of(before, &found);
		if (at < HANDLERS_MAX) {
			/* Without a handler of the program the signal interrupted no call. */
			ours.sa_flags |=
			    is_function(&found) ? found.sa_flags & SA_RESTART : (int)SA_RESTART;
			before->action[at] = found;
			nupa_store_release(&before->n, at + 1);
			sigaction(signal_number, &ours, NULL);
		}
	}
	pthread_mutex_unlock(&handlers_lock);
}

void nupa_guard_renew(void)
{
	renew(SIGSEGV);
	renew(SIGBUS);
}

static void forget_in_child(void)
{
	pthread_mutex_init(&handlers_lock, NULL);
}

static void install(void)
{
	pthread_atfork(NULL, NULL, forget_in_child);
	nupa_guard_renew();
}

void nupa_guard_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
	nupa_guard_renew();
}

void nupa_guard_admit_thread(void)
{
	sigset_t faults;

	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

#else /* nothing faults */

void nupa_guard_install(void)
{
}

void nupa_guard_renew(void)
{
}

void nupa_guard_admit_thread(void)
{
}

#endif
