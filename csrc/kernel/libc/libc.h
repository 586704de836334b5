/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * What the shared files of the engine use of libc, in a kernel: types and constants of the kernel's
 * own headers, and the functions of host/libc.c.  Every header of this folder is this one. */
#ifndef NUPA_KERNEL_LIBC_H
#define NUPA_KERNEL_LIBC_H

#include <linux/atomic.h>
#include <linux/byteorder/generic.h>
#include <linux/container_of.h>
#include <linux/ctype.h>
#include <linux/errno.h>
#include <uapi/linux/fcntl.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/kernel.h>
#include <linux/kdev_t.h>
#include <linux/limits.h>
#include <uapi/linux/mman.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/resource.h>
#include <linux/stdarg.h>
#include <uapi/linux/stat.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/types.h>
#include <uapi/linux/uio.h>
#include <asm/stat.h>

/* <stdint.h>, <inttypes.h>, <limits.h> */
#define UINT8_MAX U8_MAX
#define UINT16_MAX U16_MAX
#define UINT32_MAX U32_MAX
#define UINT64_MAX U64_MAX
#define INT32_MAX S32_MAX
#define INT64_MAX S64_MAX
#define UINT32_C(x) x##U
#define UINT64_C(x) x##ULL
#define INT64_C(x) x##LL
#define PRIu32 "u"
#define PRIu64 "llu"
#define PRIx64 "llx"

/* <errno.h>: of the last function that failed, as in a program of one thread.  Messages use it;
 * what decides is returned. */
#define ENOTSUP EOPNOTSUPP
#define errno nupa_errno
extern int nupa_errno;

/* <stdlib.h>: may be called with the engine's lock. */
void *malloc(size_t bytes);
void *calloc(size_t n, size_t bytes);
void *aligned_alloc(size_t alignment, size_t bytes);
void *realloc(void *old, size_t bytes);
void free(void *memory);
void abort(void) __attribute__((noreturn));
char *getenv(const char *name); /* NULL */
const char *strerror(int error);
unsigned long long strtoull(const char *text, char **end, int base);
void qsort(void *base, size_t n, size_t bytes, int (*compare)(const void *, const void *));
long strtol(const char *text, char **end, int base);

/* <unistd.h>, <fcntl.h>, <sys/stat.h>: there is one file, the segment, whose number is this. */
#define NUPA_SEGMENT_FD 3
int close(int fd);
ssize_t read(int fd, void *to, size_t bytes);
ssize_t write(int fd, const void *from, size_t bytes);
ssize_t pread(int fd, void *to, size_t bytes, loff_t offset);
loff_t lseek(int fd, loff_t offset, int whence);
int open(const char *path, int flags, ...);
int unlink(const char *path);
int stat(const char *path, struct stat *status);
int fstat(int fd, struct stat *status);
int fchmod(int fd, umode_t mode);
int ftruncate(int fd, loff_t bytes);
int fallocate(int fd, int mode, loff_t offset, loff_t bytes);
int flock(int fd, int operation);
pid_t getpid(void); /* of the port's thread */
int memfd_create(const char *name, unsigned int flags);
#define LOCK_UN 8
#define SEEK_DATA 3
#define major(device) MAJOR(device)
#define minor(device) MINOR(device)
#define MFD_CLOEXEC 1u

/* <sys/mman.h>: the segment's file, or anonymous memory. */
#define MAP_FAILED ((void *)-1L)
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, loff_t offset);
int munmap(void *at, size_t bytes);
void *mremap(void *at, size_t old_bytes, size_t bytes, int flags, ...);

/* <sys/uio.h>: no memory of another process is reached. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n_to,
			 const struct iovec *from, unsigned long n_from, unsigned long flags);
ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long n_from,
			  const struct iovec *to, unsigned long n_to, unsigned long flags);

/* <time.h>, <sched.h>: none sleeps where the kernel may not. */
struct timespec {
	long tv_sec, tv_nsec;
};
#define CLOCK_REALTIME 0
int clock_gettime(int clock, struct timespec *now);
int nanosleep(const struct timespec *time, struct timespec *left);
int sched_yield(void);

/* <sys/syscall.h>: futexes and barriers of processes, of which there are none. */
#define SYS_futex 1
#define SYS_membarrier 2
long syscall(long number, ...);

/* <sys/random.h>, <sys/prctl.h>, <sys/resource.h> */
ssize_t getrandom(void *to, size_t bytes, unsigned int flags);
#define PR_GET_NAME 16
#define PR_SET_PTRACER 0x59616d61
#define PR_SET_PTRACER_ANY ((unsigned long)-1)
int prctl(int option, ...);
uid_t geteuid(void);
int getrlimit(int resource, struct rlimit *limit);

/* <sys/epoll.h> */
#define EPOLL_CTL_DEL 2
struct epoll_event;
int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

/* <pthread.h> */
typedef struct {
	struct mutex mutex;
} pthread_mutex_t;
typedef struct {
	int unused;
} pthread_cond_t;
typedef struct task_struct *pthread_t;
int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes);
int pthread_mutex_destroy(pthread_mutex_t *mutex);
int pthread_mutex_lock(pthread_mutex_t *mutex);
int pthread_mutex_unlock(pthread_mutex_t *mutex);
int pthread_cond_init(pthread_cond_t *condition, const void *attributes);
int pthread_cond_destroy(pthread_cond_t *condition);
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int pthread_cond_broadcast(pthread_cond_t *condition);

typedef unsigned int socklen_t;

#endif
