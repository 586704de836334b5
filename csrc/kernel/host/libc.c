// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The functions of libc that shared files of the engine call.  Memory may be asked for with the
 * engine's lock held, so it is atomic where the kernel may not sleep.
 */
#include "kernel/host/host.h"

#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/llist.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

int nupa_errno;
struct nupa_kernel_memory nupa_kernel_memory;

/* --- memory ---------------------------------------------------------------------------- */

/* Pages of vmalloc are given back where the kernel may sleep. */
static LLIST_HEAD(freed);

static void give_back(struct work_struct *work)
{
	struct llist_node *node = llist_del_all(&freed);

	while (node) {
		struct llist_node *next = node->next;

		vfree(node);
		node = next;
	}
}

static DECLARE_WORK(giving_back, give_back);

void nupa_kernel_flush_freed(void)
{
	flush_work(&giving_back);
	give_back(NULL);
}

static gfp_t how(void)
{
	return (preemptible() ? GFP_KERNEL : GFP_ATOMIC) | __GFP_NOWARN;
}

static void *taken(void *memory)
{
	if (!memory)
		nupa_errno = ENOMEM;
	return memory;
}

void *malloc(size_t bytes)
{
	return taken(kmalloc(bytes, how()));
}

void *calloc(size_t n, size_t bytes)
{
	return taken(kcalloc(n, bytes, how()));
}

/* kmalloc aligns powers of two to their size. */
void *aligned_alloc(size_t alignment, size_t bytes)
{
	return taken(kmalloc(roundup_pow_of_two(max(alignment, bytes)), how()));
}

void *realloc(void *old, size_t bytes)
{
	return taken(krealloc(old, bytes, how()));
}

void free(void *memory)
{
	kfree(memory);
}

static void *map_pages(size_t bytes)
{
	return preemptible() ? kvzalloc(bytes, GFP_KERNEL) : kzalloc(bytes, how());
}

static void unmap_pages(void *memory)
{
	if (!is_vmalloc_addr(memory))
		kfree(memory);
	else if (preemptible())
		vfree(memory);
	else if (llist_add(memory, &freed))
		schedule_work(&giving_back);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, loff_t offset)
{
	const struct nupa_kernel_memory *memory = &nupa_kernel_memory;
	void *mapped;

	if (fd == NUPA_SEGMENT_FD && offset <= memory->bytes && bytes <= memory->bytes - offset)
		return (uint8_t *)memory->base + offset;
	mapped = fd < 0 ? map_pages(bytes) : NULL;
	return taken(mapped) ? mapped : MAP_FAILED;
}

int munmap(void *at, size_t bytes)
{
	const struct nupa_kernel_memory *memory = &nupa_kernel_memory;

	if ((uint8_t *)at < (uint8_t *)memory->base ||
	    (uint8_t *)at >= (uint8_t *)memory->base + memory->bytes)
		unmap_pages(at);
	return 0;
}

void qsort(void *base, size_t n, size_t bytes, int (*compare)(const void *, const void *))
{
	sort(base, n, bytes, compare, NULL);
}

/* --- the one file ---------------------------------------------------------------------- */

/* As a PCI resource in sysfs is: a file that can be mapped and not read (segment/backing.c). */
int fstat(int fd, struct stat *status)
{
	if (fd != NUPA_SEGMENT_FD)
		return -1;
	memset(status, 0, sizeof(*status));
	status->st_mode = S_IFREG | 0600;
	status->st_size = nupa_kernel_memory.bytes;
	return 0;
}

ssize_t pread(int fd, void *to, size_t bytes, loff_t offset)
{
	nupa_errno = EIO;
	return -1;
}

/* There are no others. */
#define NO_FILE(result, declaration)                                                               \
	result declaration                                                                         \
	{                                                                                          \
		nupa_errno = ENOENT;                                                               \
		return -1;                                                                         \
	}

NO_FILE(int, open(const char *path, int flags, ...))
NO_FILE(int, unlink(const char *path))
NO_FILE(int, stat(const char *path, struct stat *status))
NO_FILE(int, fchmod(int fd, umode_t mode))
NO_FILE(int, ftruncate(int fd, loff_t bytes))
NO_FILE(int, fallocate(int fd, int mode, loff_t offset, loff_t bytes))
NO_FILE(int, memfd_create(const char *name, unsigned int flags))
NO_FILE(int, epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event))
NO_FILE(ssize_t, read(int fd, void *to, size_t bytes))
NO_FILE(ssize_t, write(int fd, const void *from, size_t bytes))
NO_FILE(loff_t, lseek(int fd, loff_t offset, int whence))
NO_FILE(long, syscall(long number, ...))
NO_FILE(int, getrlimit(int resource, struct rlimit *limit))
NO_FILE(ssize_t,
	process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n_to,
			 const struct iovec *from, unsigned long n_from, unsigned long flags))
NO_FILE(ssize_t, process_vm_writev(pid_t pid, const struct iovec *from, unsigned long n_from,
				   const struct iovec *to, unsigned long n_to, unsigned long flags))

int close(int fd)
{
	return 0;
}

int flock(int fd, int operation)
{
	return 0;
}

void *mremap(void *at, size_t old_bytes, size_t bytes, int flags, ...)
{
	return MAP_FAILED;
}

/* --- text ------------------------------------------------------------------------------ */

char *getenv(const char *name)
{
	return NULL;
}

const char *strerror(int error)
{
	static const struct {
		int error;
		const char *text;
	} known[] = {
		{ ENOMEM, "out of memory" },        { ENOSPC, "no space" },
		{ EINVAL, "invalid argument" },     { EBUSY, "busy" },
		{ EUSERS, "all slots are in use" }, { ENXIO, "no such device" },
		{ EHOSTUNREACH, "no such host" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i].error == error)
			return known[i].text;
	return "failed";
}

unsigned long long strtoull(const char *text, char **end, int base)
{
	return simple_strtoull(text, end, base);
}

long strtol(const char *text, char **end, int base)
{
	return simple_strtol(text, end, base);
}

/* --- the process ----------------------------------------------------------------------- */

uid_t geteuid(void)
{
	return 0;
}

int prctl(int option, ...)
{
	va_list args;

	if (option != PR_GET_NAME)
		return 0;
	va_start(args, option);
	strscpy(va_arg(args, char *), "nupa_core", TASK_COMM_LEN);
	va_end(args);
	return 0;
}

ssize_t getrandom(void *to, size_t bytes, unsigned int flags)
{
	get_random_bytes(to, bytes);
	return bytes;
}

int clock_gettime(int clock, struct timespec *now)
{
	struct timespec64 real;

	ktime_get_real_ts64(&real);
	*now = (struct timespec){ real.tv_sec, real.tv_nsec };
	return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
	if (preemptible())
		fsleep(time->tv_sec * USEC_PER_SEC + time->tv_nsec / NSEC_PER_USEC);
	return 0;
}

int sched_yield(void)
{
	if (preemptible())
		cond_resched();
	return 0;
}

void abort(void)
{
	panic("nupa: out of memory where none may fail");
}

/* --- mutexes: of objects, never with the engine's lock ------------------------------------ */

int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes)
{
	mutex_init(&mutex->mutex);
	return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
	mutex_destroy(&mutex->mutex);
	return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	mutex_lock(&mutex->mutex);
	return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	mutex_unlock(&mutex->mutex);
	return 0;
}

int pthread_cond_init(pthread_cond_t *condition, const void *attributes)
{
	return 0;
}

int pthread_cond_destroy(pthread_cond_t *condition)
{
	return 0;
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	mutex_unlock(&mutex->mutex);
	fsleep(1000);
	mutex_lock(&mutex->mutex);
	return 0;
}
