// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * nupa_core maps the memory that has a fabric in it, and attaches to a host.
 *
 *   insmod nupa_core.ko base=ADDRESS bytes=SIZE host=NAME
 *
 * ADDRESS and SIZE are those of a DAX device's range (/sys/bus/dax/devices/dax0.0/resource, size)
 * or of BAR 2 of an ivshmem device.  Nobody else may use the range as ordinary memory.
 */
#include "kernel/core/core.h"
#include "segment/gid.h"

#include <linux/fs.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static ulong base, bytes;
static char *host = "0";
module_param(base, ulong, 0444);
MODULE_PARM_DESC(base, "physical address of the fabric's memory");
module_param(bytes, ulong, 0444);
MODULE_PARM_DESC(bytes, "its size");
module_param(host, charp, 0444);
MODULE_PARM_DESC(host, "the host of the fabric that this kernel is, by name or number");

static struct nupa_fabric *fabric;
static struct ibv_context *context;

struct ibv_context *nupa_core_context(void)
{
	return context;
}
EXPORT_SYMBOL_GPL(nupa_core_context);

void nupa_core_set_user(const struct nupa_kernel_user *user)
{
	nupa_store_release(&nupa_kernel_user, user);
	if (!user)
		nupa_kernel_events_flush();
}
EXPORT_SYMBOL_GPL(nupa_core_set_user);

/* Processes of this kernel know it by this number, too. */
static int know_kernel(void)
{
	struct file *file = filp_open(BOOT_ID, O_RDONLY, 0);
	char text[64] = "";
	loff_t at = 0;
	ssize_t n;

	if (IS_ERR(file)) {
		pr_err("nupa_core: cannot open " BOOT_ID ": is /proc mounted?\n");
		return PTR_ERR(file);
	}
	n = kernel_read(file, text, sizeof(text) - 1, &at);
	filp_close(file, NULL);
	if (n < NUPA_BOOT_ID_CHARS)
		return n < 0 ? n : -ENODATA;
	nupa_kernel_pretend(nupa_kernel_id_of(text));
	return 0;
}

static int map_memory(void)
{
	if (!base || !bytes || !PAGE_ALIGNED(base) || !PAGE_ALIGNED(bytes)) {
		pr_err("nupa_core: base=%#lx bytes=%#lx is not a range of pages: give those of the "
		       "DAX device "
		       "or BAR\n",
		       base, bytes);
		return -EINVAL;
	}
	nupa_kernel_memory.base = memremap(base, bytes, MEMREMAP_WB);
	nupa_kernel_memory.bytes = bytes;
	if (nupa_kernel_memory.base)
		return 0;
	pr_err("nupa_core: cannot map %lu bytes at %#lx\n", bytes, base);
	return -ENXIO;
}

static int attach(void)
{
	char why[256] = "";
	int number, error = nupa_fabric_open("memory", &fabric, why, sizeof(why));

	if (error) {
		pr_err("nupa_core: no fabric in the memory at %#lx: %s\n", base, why);
		return error;
	}
	number = nupa_host_of_name(fabric, host);
	if (number < 0) {
		pr_err("nupa_core: fabric %s has no host %s\n", nupa_fabric_name(fabric), host);
		return number;
	}
	context = nupa_kernel_open(fabric, number, why, sizeof(why));
	if (context)
		return 0;
	pr_err("nupa_core: %s\n", why);
	return -EBUSY;
}

static void leave(void)
{
	if (context)
		nupa_kernel_close(context);
	if (fabric && !nupa_load_acquire(&nupa_kernel_halted))
		nupa_fabric_put(fabric);
	nupa_kernel_port_forget();
	nupa_kernel_flush_freed();
	if (nupa_kernel_memory.base)
		memunmap(nupa_kernel_memory.base);
}

static int __init core_init(void)
{
	int error = know_kernel();

	if (!error)
		error = map_memory();
	if (!error)
		error = nupa_kernel_port_prepare();
	if (!error)
		error = attach();
	if (error) {
		leave();
		return error;
	}
	pr_info("nupa_core: host %s of fabric %s, slot %u\n", host, nupa_fabric_name(fabric),
		nupa_engine_of(context)->slot_index);
	return 0;
}

static void __exit core_exit(void)
{
	leave();
}

module_init(core_init);
module_exit(core_exit);
MODULE_LICENSE("Dual BSD/GPL");
MODULE_DESCRIPTION("NUPA: an attachment of this kernel to a fabric in shared memory");
