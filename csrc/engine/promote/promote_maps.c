/* SPDX-License-Identifier: BSD-3-Clause
 * The kernel's view of the program's memory: mappings, one at a time by PROCMAP_QUERY (Linux
 * 6.11) or all of them as text. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAPS_TEXT_MAX_BYTES (64u << 20)

/* <linux/fs.h> since Linux 6.11: struct procmap_query. */
struct maps_query {
	uint64_t size, flags, address;
	uint64_t start, end, vma_flags, page_bytes, offset, inode;
	uint32_t major, minor;
	uint32_t name_bytes, build_id_bytes;
	uint64_t name, build_id;
};
#define MAPS_QUERY _IOWR('f', 17, struct maps_query)
#define MAPS_READABLE 0x01
#define MAPS_WRITABLE 0x02
#define MAPS_EXECUTABLE 0x04
#define MAPS_SHARED 0x08
#define MAPS_COVERING_OR_NEXT 0x10
#define MAPS_FILE_BACKED 0x20

uint64_t nupa_page_bytes(void)
{
	static uint64_t bytes NUPA_NOT_PROMOTED;

	if (!bytes)
		bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	return bytes;
}

/* *name* is empty where the mapping has none, or a longer one. */
static bool query(struct nupa_maps *maps, uint64_t address, uint64_t kind, struct nupa_vma *vma,
		  char *name, uint32_t name_bytes)
{
	struct maps_query q = {
		.size = sizeof(q),
		.flags = MAPS_COVERING_OR_NEXT | kind,
		.address = address,
		.name_bytes = name_bytes,
		.name = (uintptr_t)name,
	};
	int error = ioctl(maps->fd, MAPS_QUERY, &q) ? errno : 0;

	if (error == ENAMETOOLONG) {
		q.name_bytes = 0;
		q.name = 0;
		error = ioctl(maps->fd, MAPS_QUERY, &q) ? errno : 0;
	}
	if (error)
		return false;
	if (!q.name_bytes)
		name[0] = 0;
	*vma = (struct nupa_vma){
		.start = q.start,
		.end = q.end,
		.offset = q.offset,
		.inode = q.inode,
		.device = makedev(q.major, q.minor),
		.prot = (q.vma_flags & MAPS_READABLE ? PROT_READ : 0) |
			(q.vma_flags & MAPS_WRITABLE ? PROT_WRITE : 0) |
			(q.vma_flags & MAPS_EXECUTABLE ? PROT_EXEC : 0),
		.shared = q.vma_flags & MAPS_SHARED,
		.stack = strcmp(name, "[stack]") == 0,
	};
	return true;
}

/* One line of text, from maps->at on, which moves behind it. */
static bool parse(struct nupa_maps *maps, struct nupa_vma *vma, const char **name,
		  size_t *name_bytes)
{
	const char *line = maps->text + maps->at;
	const char *end = memchr(line, '\n', maps->text_bytes - maps->at);
	unsigned int major, minor;
	char prot[5];
	int name_at = 0;

	if (!end)
		return false;
	maps->at = (size_t)(end + 1 - maps->text);
	*vma = (struct nupa_vma){ 0 };
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4c %" SCNx64 " %x:%x %" SCNu64 " %n",
		   &vma->start, &vma->end, prot, &vma->offset, &major, &minor, &vma->inode,
		   &name_at) != 7)
		return false;
	vma->device = makedev(major, minor);
	vma->prot = (prot[0] == 'r' ? PROT_READ : 0) | (prot[1] == 'w' ? PROT_WRITE : 0) |
		    (prot[2] == 'x' ? PROT_EXEC : 0);
	vma->shared = prot[3] == 's';
	*name = line + name_at < end ? line + name_at : end;
	*name_bytes = (size_t)(end - *name);
	vma->stack = *name_bytes == 7 && memcmp(*name, "[stack]", 7) == 0;
	return true;
}

static int read_text(struct nupa_maps *maps)
{
	/* Not malloc: it would change what is being read.  Pages that are not touched cost nothing.
	 */
	maps->text = mmap(NULL, MAPS_TEXT_MAX_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (maps->text == MAP_FAILED) {
		maps->text = NULL;
		return -ENOMEM;
	}
	while (maps->text_bytes < MAPS_TEXT_MAX_BYTES) {
		ssize_t n = read(maps->fd, maps->text + maps->text_bytes,
				 MAPS_TEXT_MAX_BYTES - maps->text_bytes - 1);

		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		maps->text_bytes += (size_t)n;
	}
	return -E2BIG;
}

int nupa_maps_open(struct nupa_maps *maps)
{
	static bool text_only NUPA_NOT_PROMOTED; /* as the kernel is */
	struct maps_query q = { .size = sizeof(q), .flags = MAPS_COVERING_OR_NEXT };
	int error = 0;

	*maps = (struct nupa_maps){ .fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC) };
	if (maps->fd < 0)
		return -errno;
	if (!text_only && ioctl(maps->fd, MAPS_QUERY, &q))
		text_only = true;
	if (text_only)
		error = read_text(maps);
	if (error)
		nupa_maps_close(maps);
	return error;
}

void nupa_maps_close(struct nupa_maps *maps)
{
	close(maps->fd);
	if (maps->text)
		munmap(maps->text, MAPS_TEXT_MAX_BYTES);
	maps->text = NULL;
}

bool nupa_maps_find(struct nupa_maps *maps, uint64_t address, struct nupa_vma *vma)
{
	size_t line = maps->at, name_bytes;
	const char *text;
	char name[16];

	if (!maps->text)
		return query(maps, address, 0, vma, name, sizeof(name));
	while (parse(maps, vma, &text, &name_bytes)) {
		if (vma->end > address) {
			maps->at = line; /* the next question may mean the same one */
			return true;
		}
		line = maps->at;
	}
	return false;
}

bool nupa_maps_find_shared(struct nupa_maps *maps, uint64_t address, struct nupa_vma *vma,
			   char *name, uint32_t name_max)
{
	size_t name_bytes;
	const char *text;

	if (!maps->text)
		return query(maps, address, MAPS_SHARED | MAPS_FILE_BACKED, vma, name, name_max);
	while (parse(maps, vma, &text, &name_bytes)) {
		if (vma->end <= address || !vma->shared)
			continue;
		if (name_bytes >= name_max)
			name_bytes = 0;
		memcpy(name, text, name_bytes);
		name[name_bytes] = 0;
		return true;
	}
	return false;
}
