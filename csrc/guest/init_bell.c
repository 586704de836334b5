// SPDX-License-Identifier: BSD-3-Clause
/*
 * The doorbell of an ivshmem device (QEMU's docs/specs/ivshmem-spec).  VFIO gives its interrupt, an
 * MSI-X, as an eventfd (the kernel's Documentation/driver-api/vfio.rst), behind the guest's IOMMU.
 * Without a doorbell the guest polls: no failure here is fatal.
 */
#include "guest/init.h"

#include "segment/bell_guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PCI "/sys/bus/pci"
/* The initramfs's folder, below the guest's root. */
#define RUN_DIR "/run/nupa"
#define BACKLOG 64

static int bind_driver(struct guest *guest, const char *name)
{
	static const char *const modules[] = { "vfio_pci", "vfio_iommu_type1" };
	int error;

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		error = module_load(RUN_DIR, modules[i]);
		if (error) {
			errno = -error;
			return guest_fails(guest, "cannot load the module %s", modules[i]);
		}
	}
	error = file_write("vfio-pci", PCI "/devices/%s/driver_override", name);
	if (!error)
		error = file_write(name, PCI "/drivers_probe");
	/* QEMU's IOMMU does not check the source of interrupts: all of this guest is one user's. */
	if (!error)
		error = file_write("1", "/sys/module/vfio_iommu_type1/parameters/"
					"allow_unsafe_interrupts");
	if (error) {
		errno = -error;
		return guest_fails(guest, "cannot give %s to vfio-pci", name);
	}
	return 0;
}

/* /dev/vfio/GROUP of the device: its descriptor, or -errno. */
static int open_group(struct guest *guest, const char *name)
{
	char link[PATH_MAX], target[PATH_MAX], path[64];
	const char *group;
	ssize_t bytes;
	int fd;

	snprintf(link, sizeof(link), PCI "/devices/%s/iommu_group", name);
	bytes = readlink(link, target, sizeof(target) - 1);
	if (bytes < 0)
		return guest_fails(guest, "%s is behind no IOMMU", name);
	target[bytes] = '\0';
	group = strrchr(target, '/');
	snprintf(path, sizeof(path), "/dev/vfio/%.16s", group ? group + 1 : target);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? guest_fails(guest, "cannot open %s", path) : fd;
}

/* The device as VFIO has it; container and group stay open with it. */
static int open_device(struct guest *guest, const char *name)
{
	int container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	int group, device;

	if (container < 0)
		return guest_fails(guest, "cannot open /dev/vfio/vfio");
	group = open_group(guest, name);
	if (group < 0)
		return group;
	if (ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) ||
	    ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
		return guest_fails(guest, "VFIO refuses the group of %s", name);
	device = ioctl(group, VFIO_GROUP_GET_DEVICE_FD, name);
	return device < 0 ? guest_fails(guest, "VFIO refuses %s", name) : device;
}

/* An MSI-X is a write of the device to memory: it has to be allowed to write. */
static int enable_writes(struct guest *guest, int device)
{
	struct vfio_region_info config = { .argsz = sizeof(config),
					   .index = VFIO_PCI_CONFIG_REGION_INDEX };
	uint16_t command;
	off_t at;

	if (ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &config))
		return guest_fails(guest, "VFIO has no configuration space");
	at = (off_t)config.offset + PCI_COMMAND;
	if (pread(device, &command, sizeof(command), at) != (ssize_t)sizeof(command))
		return guest_fails(guest, "cannot read the command register");
	command |= PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
	if (pwrite(device, &command, sizeof(command), at) != (ssize_t)sizeof(command))
		return guest_fails(guest, "cannot write the command register");
	return 0;
}

static int route_interrupt(struct guest *guest, int device)
{
	const int32_t event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	union {
		struct vfio_irq_set set; /* its data is the event */
		uint8_t bytes[sizeof(struct vfio_irq_set) + sizeof(event)];
	} order = {
		.set = {
			.argsz = sizeof(order.bytes),
			.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
			.index = VFIO_PCI_MSIX_IRQ_INDEX,
			.count = 1,
		},
	};

	if (event < 0)
		return guest_fails(guest, "cannot make an eventfd");
	memcpy(order.bytes + sizeof(order.set), &event, sizeof(event));
	if (ioctl(device, VFIO_DEVICE_SET_IRQS, &order))
		return guest_fails(guest, "VFIO provides no MSI-X");
	guest->bell.event = event;
	return 0;
}

/* The registers, and this guest's number. */
static int open_registers(struct guest *guest, const char *name)
{
	char path[PATH_MAX];
	volatile uint32_t *registers;

	snprintf(path, sizeof(path), PCI "/devices/%s/resource0", name);
	guest->bell.registers = open(path, O_RDWR | O_SYNC | O_CLOEXEC);
	if (guest->bell.registers < 0)
		return guest_fails(guest, "cannot open %s", path);
	registers = mmap(NULL, IVSHMEM_REGISTERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			 guest->bell.registers, 0);
	if (registers == MAP_FAILED)
		return guest_fails(guest, "cannot map %s", path);
	guest->bell.number = registers[IVSHMEM_IV_POSITION / sizeof(*registers)];
	munmap((void *)registers, IVSHMEM_REGISTERS_BYTES);
	return 0;
}

static int listen_for_processes(struct guest *guest)
{
	const struct sockaddr_un address = { AF_UNIX, NUPA_BELL_GUEST_PATH };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (listener < 0 || bind(listener, (const struct sockaddr *)&address, sizeof(address)) ||
	    listen(listener, BACKLOG))
		return guest_fails(guest, "cannot listen at " NUPA_BELL_GUEST_PATH);
	guest->bell.listener = listener;
	return 0;
}

static int set_up(struct guest *guest, const char *name)
{
	int device;
	int error = bind_driver(guest, name);

	if (error)
		return error;
	device = open_device(guest, name);
	if (device < 0)
		return device;
	error = enable_writes(guest, device);
	if (!error)
		error = route_interrupt(guest, device);
	if (!error)
		error = open_registers(guest, name);
	if (!error)
		error = listen_for_processes(guest);
	return error;
}

int init_bell(struct guest *guest)
{
	char path[PATH_MAX];
	int error;

	snprintf(path, sizeof(path), PCI "/devices/%s/resource1", guest->pci);
	/* Only ivshmem-doorbell has interrupts, and an MSI-X table. */
	if (!guest->pci[0] || access(path, F_OK))
		return 0;
	error = set_up(guest, guest->pci);
	guest->bell.there = !error;
	if (error)
		fprintf(stderr, "nupa: no doorbell: %s: %s: processes poll\n", guest->why,
			strerror(-error));
	return 0;
}

/* --- for processes of the guest ---------------------------------------------------------- */

static void give(const struct guest *guest, int client)
{
	struct nupa_bell_guest message = { NUPA_BELL_GUEST_MAGIC, guest->bell.number };
	const int files[2] = { guest->bell.event, guest->bell.registers };
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(files))];
	} control = { .head = { CMSG_LEN(sizeof(files)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec iov = { &message, sizeof(message) };
	struct msghdr header = { .msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes) };

	memcpy(CMSG_DATA(&control.head), files, sizeof(files));
	if (sendmsg(client, &header, MSG_NOSIGNAL) < 0)
		fprintf(stderr, "nupa: doorbell: cannot give it to a process: %s\n",
			strerror(errno));
}

int bell_serve(const struct guest *guest)
{
	for (;;) {
		int client = accept4(guest->bell.listener, NULL, NULL, SOCK_CLOEXEC);

		if (client >= 0) {
			give(guest, client);
			close(client);
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return -errno;
		}
	}
}
