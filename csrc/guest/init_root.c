// SPDX-License-Identifier: BSD-3-Clause
/*
 * The root of a guest: the machine's own file system, read-only over 9p, below a tmpfs that takes
 * the guest's writes.  Files that belong to a kernel or to one boot are the guest's own.
 */
#include "guest/init.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEW "/new"
/* cache=loose: each access past the cache is a round trip through two schedulers.  The cache is
 * emptied before each command (init_refresh), so that changes are seen.  `msize` is the most that
 * QEMU's virtio-9p takes. */
#define ROOT_OPTIONS "trans=virtio,version=9p2000.L,cache=loose,msize=512000"

static const char *const folders[] = { "/lower", "/over", NEW };

struct mounting {
	const char *source, *target, *type;
	unsigned long flags;
	const char *options;
	mode_t folder; /* makes the target first; 0: it is there */
};

static const struct mounting mountings[] = {
	{ ROOT_TAG, "/lower", "9p", MS_RDONLY, ROOT_OPTIONS, 0 },
	{ "over", "/over", "tmpfs", 0, "mode=0755,size=75%", 0 },
	{ NULL, "/over/upper", NULL, 0, NULL, 0755 },
	{ NULL, "/over/work", NULL, 0, NULL, 0755 },
	{ "root", NEW, "overlay", 0, "lowerdir=/lower,upperdir=/over/upper,workdir=/over/work", 0 },
	{ "/dev", NEW "/dev", NULL, MS_MOVE, NULL, 0 },
	{ "/proc", NEW "/proc", NULL, MS_MOVE, NULL, 0 },
	{ "/sys", NEW "/sys", NULL, MS_MOVE, NULL, 0 },
	{ "pts", NEW "/dev/pts", "devpts", 0, "mode=0620,ptmxmode=0666", 0755 },
	{ "shm", NEW "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777", 0755 },
	{ "run", NEW "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755", 0 },
	{ MODULES_DIR, NEW "/run/nupa", NULL, MS_BIND, NULL, 0755 },
};

static int mount_one(struct guest *guest, const struct mounting *mounting)
{
	if (mounting->folder && mkdir(mounting->target, mounting->folder) && errno != EEXIST)
		return guest_fails(guest, "cannot make %s", mounting->target);
	if (mounting->source && mount(mounting->source, mounting->target, mounting->type,
				      mounting->flags, mounting->options))
		return guest_fails(guest, "cannot mount %s on %s", mounting->source,
				   mounting->target);
	return 0;
}

/* *path* becomes a link to *target*, in place of anything there. */
static int make_link(struct guest *guest, const char *target, const char *path)
{
	if (unlink(path) && errno != ENOENT)
		return guest_fails(guest, "cannot remove %s", path);
	if (symlink(target, path))
		return guest_fails(guest, "cannot link %s to %s", path, target);
	return 0;
}

int init_root(struct guest *guest)
{
	int error = 0;

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (mkdir(folders[i], 0755) && errno != EEXIST)
			return guest_fails(guest, "cannot make %s", folders[i]);
	for (size_t i = 0; i < sizeof(mountings) / sizeof(mountings[0]) && !error; i++)
		error = mount_one(guest, &mountings[i]);
	if (!error)
		error = make_link(guest, guest->memory, NEW MEMORY_LINK);
	/* The kernel looks for it here: /run/nupa has modules that were not needed to start. */
	if (!error)
		error = make_link(guest, "/run/nupa/guest", NEW "/sbin/modprobe");
	if (error)
		return error;
	/* As switch_root(8) does it: a root in memory cannot be left by pivot_root(2). */
	if (chdir(NEW) || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		return guest_fails(guest, "cannot make " NEW " the root");
	return 0;
}

void init_refresh(void)
{
	/* Only unused entries are dropped.  If this failed, a command might see a file's former
	 * content. */
	int error = file_write("2", "/proc/sys/vm/drop_caches");

	if (error)
		fprintf(stderr, "nupa: cannot drop caches: %s\n", strerror(-error));
}
