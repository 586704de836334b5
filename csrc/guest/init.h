/* SPDX-License-Identifier: BSD-3-Clause
 * Declarations shared by the steps of a guest's start. */
#ifndef NUPA_VM_INIT_H
#define NUPA_VM_INIT_H

#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the initramfs: written by nupa/vm/boot/initramfs.py. */
#define MODULES_DIR "/nupa"
/* The shared memory, for all users. */
#define MEMORY_LINK "/dev/nupa0"
#define ROOT_TAG "nupa-root"

/* How long a step waits for the kernel to find a device. */
#define DEVICE_WAIT_MS 20000

struct guest {
	char host[65];          /* nupa.host= on the kernel's command line */
	char kind[16];          /* nupa.kind=: cxl or ivshmem */
	uint64_t bytes;         /* nupa.bytes=: of the shared memory */
	char hosts[1024];       /* nupa.hosts=: addresses and names on eth0's network, or none */
	char memory[PATH_MAX];  /* the target of MEMORY_LINK */
	char pci[NAME_MAX + 1]; /* the ivshmem device; empty: none */
	struct {
		bool there;
		int event;     /* every interrupt writes to this eventfd */
		int registers; /* of the device, to be mapped */
		int listener;
		uint32_t number;
	} bell;                   /* init_bell.c */
	char why[PATH_MAX + 200]; /* the failed step's action, and its object */
};

/* Remembers why, returns -errno: `return guest_fails(guest, "cannot open %s", path)`. */
int guest_fails(struct guest *guest, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A file of a few bytes, without its newline.  0 or -errno. */
int file_read(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int file_write(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Steps: 0 or -errno, with guest->why. */
int init_modules(struct guest *guest);
int init_cxl(struct guest *guest);
int init_ivshmem(struct guest *guest);
int init_bell(struct guest *guest); /* always 0: without a doorbell processes poll */
int init_root(struct guest *guest);
int init_network(struct guest *guest);
/* ioctl(2) of a socket of this family: 0 or -1 with errno. */
int network_ask(int family, unsigned long request, void *argument);
/* Gives an interface an address of a /24, and brings it up. */
int network_up(struct guest *guest, const char *interface, struct in_addr address);
int init_attach(struct guest *guest);

/* Gives the doorbell to processes that ask.  Returns -errno when that ends. */
int bell_serve(const struct guest *guest);

/* Makes changes of the machine's file system visible. */
void init_refresh(void);

/* Loads a module of the list in *dir* after the modules that it needs: 0 or -errno. */
int module_load(const char *dir, const char *name);
/* The same, with parameters of the module itself. */
int module_load_with(const char *dir, const char *name, const char *parameters);

#endif
