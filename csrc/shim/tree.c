/* SPDX-License-Identifier: BSD-3-Clause
 * The tree: real files that mirror the device's paths.  Each host of a fabric has one, shared by
 * all its programs and removed with the fabric.  The first program to look makes it, in a folder of
 * its own, which is renamed when it is complete.  Nothing here waits for another process, and no fd
 * stays open. */
#define _GNU_SOURCE
#include "shim/shim.h"

#include "base/explain.h"
#include "base/rlimit.h"
#include "engine/device/device.h"
#include "segment/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 8u /* that are followed in one path */

/* The folder of all trees of a fabric may be in a folder that anyone may write to: files of another
 * user are not trusted. */
static bool is_trusted(const char *folder)
{
	struct stat st;

	return !lstat(folder, &st) && S_ISDIR(st.st_mode) && !(st.st_mode & 077) &&
	       nupa_owner_is_us(st.st_uid);
}

/* The folders above path; those above the tree exist. */
static int make_folders(char *path, size_t from)
{
	for (char *slash = path + from; (slash = strchr(slash, '/')); slash++) {
		int made;

		*slash = '\0';
		made = mkdir(path, 0700);
		*slash = '/';
		if (made && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0444);
	size_t length = strlen(text);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (nupa_limit_allows_file(length)) {
		ssize_t written = write(fd, text, length);

		if (written != (ssize_t)length)
			error = written < 0 ? -errno : -ENOSPC;
	} else {
		error = -errno;
	}
	close(fd);
	return error;
}

static bool leads_in_tree(const struct nupa_shim_file *file)
{
	return file->link && !strncmp(file->text, "/sys/", 5);
}

/* As sysfs has them: relative, with the name of the target, which tools take from it. */
static int make_link(const struct nupa_shim_file *file, const char *path)
{
	const char *name = strrchr(file->text, '/');
	char target[NUPA_SHIM_PATH_MAX_BYTES] = "";
	size_t same = 0, at = 0;

	if (!leads_in_tree(file))
		return symlink(file->text, path) ? -errno : 0;
	for (size_t i = 0; file->text + i <= name && file->text[i] == file->path[i]; i++)
		if (file->text[i] == '/')
			same = i + 1;
	for (const char *rest = file->path + same; (rest = strchr(rest, '/')); rest++)
		at += (size_t)snprintf(target + at, sizeof(target) - at, "../");
	snprintf(target + at, sizeof(target) - at, "%s", file->text + same);
	return symlink(target, path) ? -errno : 0;
}

static bool is_there(const struct nupa_shim_view *view, const struct nupa_shim_file *file)
{
	const bool ethernet = view->fabric->hosts[view->host].link_layer == NUPA_LINK_ETHERNET;

	return ethernet ? !file->infiniband_only : !file->ethernet_only;
}

static int make_file(const struct nupa_shim_view *view, const struct nupa_shim_file *file,
		     const char *root, size_t root_bytes)
{
	char path[NUPA_SHIM_PATH_MAX_BYTES], text[NUPA_SHIM_TEXT_MAX_BYTES];
	int error;

	if (!is_there(view, file))
		return 0;
	if (snprintf(path, sizeof(path), "%s%s", root, file->path) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	error = make_folders(path, root_bytes + 1);
	if (error)
		return error;
	if (file->link)
		return make_link(file, path);
	if (!file->text)
		file->say(view, file->index, text, sizeof(text));
	return write_file(path, file->text ? file->text : text);
}

/* The present part of a tree that was not completed. */
static void unmake(const char *root)
{
	char path[NUPA_SHIM_PATH_MAX_BYTES];

	for (uint32_t i = 0; i < nupa_shim_n_files; i++) {
		char *slash;

		if (snprintf(path, sizeof(path), "%s%s", root, nupa_shim_files[i].path) >=
		    (int)sizeof(path))
			continue;
		unlink(path);
		/* Up to the root: a folder that is not empty stays until the last. */
		while ((slash = strrchr(path, '/')) && (size_t)(slash - path) >= strlen(root)) {
			*slash = '\0';
			if (rmdir(path))
				break;
		}
	}
	rmdir(root);
}

/* The folder of all trees, in which the tree of a host lies. */
static void name_above(const char *root, char above[NUPA_SHIM_ROOT_MAX_BYTES])
{
	snprintf(above, NUPA_SHIM_ROOT_MAX_BYTES, "%.*s", (int)(strrchr(root, '/') - root), root);
}

static int make_tree(const struct nupa_shim_view *view, const char *root)
{
	char making[NUPA_SHIM_ROOT_MAX_BYTES + 32];
	const char *host = strrchr(root, '/') + 1;
	int error = 0;

	name_above(root, making);
	if (mkdir(making, 0700) && errno != EEXIST)
		return -errno;
	if (!is_trusted(making))
		return -EPERM;
	snprintf(making, sizeof(making), "%.*s.%s.%d.XXXXXX", (int)(host - root), root, host,
		 getpid());
	if (!mkdtemp(making))
		return -errno;
	for (uint32_t i = 0; !error && i < nupa_shim_n_files; i++)
		error = make_file(view, &nupa_shim_files[i], making, strlen(making));
	/* Fails where another process was faster: its tree is as good. */
	if (error || rename(making, root))
		unmake(making);
	return error;
}

/* Renames over the old text: a reader finds the one or the other, whole. */
static void renew(const struct nupa_shim_view *view, const struct nupa_shim_file *file,
		  const char *root)
{
	char path[NUPA_SHIM_PATH_MAX_BYTES], fresh[NUPA_SHIM_PATH_MAX_BYTES];
	char text[NUPA_SHIM_TEXT_MAX_BYTES];

	if (!is_there(view, file) ||
	    snprintf(path, sizeof(path), "%s%s", root, file->path) >= (int)sizeof(path) ||
	    snprintf(fresh, sizeof(fresh), "%s/.%d", root, gettid()) >= (int)sizeof(fresh))
		return;
	file->say(view, file->index, text, sizeof(text));
	/* A full file system leaves the old text. */
	if (write_file(fresh, text) || rename(fresh, path))
		unlink(fresh);
}

/* Whether file lies at path or below it. */
static bool lies_at(const char *file, const char *path)
{
	size_t length = strlen(path);

	while (length > 1 && path[length - 1] == '/')
		length--;
	return !strncmp(file, path, length) && (!file[length] || file[length] == '/');
}

/* Follows the tree's links on the way of a path, which is a bit longer afterwards. */
static void follow_links(const char *path, char followed[NUPA_SHIM_PATH_MAX_BYTES])
{
	char rest[NUPA_SHIM_PATH_MAX_BYTES];

	snprintf(followed, NUPA_SHIM_PATH_MAX_BYTES, "%s", path);
	for (uint32_t i = 0, links = 0; i < nupa_shim_n_files && links < LINKS_MAX; i++) {
		const struct nupa_shim_file *file = &nupa_shim_files[i];

		if (!leads_in_tree(file) || !lies_at(followed, file->path))
			continue;
		snprintf(rest, sizeof(rest), "%s", followed + strlen(file->path));
		snprintf(followed, NUPA_SHIM_PATH_MAX_BYTES, "%s%.*s", file->text,
			 (int)(sizeof(rest) / 2), rest);
		links++;
		i = UINT32_MAX; /* from the first */
	}
}

/* Whether a program that uses the path may read the file: it is that file, or a folder above it, or
 * one above a link to that.  A path that goes back may be any. */
static bool reaches(const char *path, const struct nupa_shim_file *file)
{
	if (lies_at(file->path, path) || strstr(path, "/.") || strstr(path, "//"))
		return true;
	for (uint32_t i = 0; i < nupa_shim_n_files; i++)
		if (leads_in_tree(&nupa_shim_files[i]) && lies_at(nupa_shim_files[i].path, path) &&
		    lies_at(file->path, nupa_shim_files[i].text))
			return true;
	return false;
}

static bool is_live(const char *path)
{
	for (uint32_t i = 0; i < nupa_shim_n_files; i++)
		if (nupa_shim_files[i].live && reaches(path, &nupa_shim_files[i]))
			return true;
	return false;
}

static void hint_why(const char *root, int error)
{
	char above[NUPA_SHIM_ROOT_MAX_BYTES], owner[64];

	name_above(root, above);
	/* EPERM is another's folder here. */
	nupa_hint("cannot make %s below %s%s: %s%s; /sys/class/infiniband is not shown",
		  strrchr(root, '/') + 1, above, nupa_owner_say(above, owner, sizeof(owner)),
		  strerror(-error), error == -EPERM ? "" : nupa_remedy(-error));
}

int nupa_shim_tree_show(const char *root, const char *fabric, const char *host, const char *path)
{
	char above[NUPA_SHIM_ROOT_MAX_BYTES], why[512], followed[NUPA_SHIM_PATH_MAX_BYTES];
	struct nupa_shim_view view;
	int error, found;
	bool made;

	name_above(root, above);
	follow_links(path, followed);
	made = is_trusted(above) && is_trusted(root);
	if (made && !is_live(followed))
		return 0;
	error = nupa_fabric_open(fabric, &view.fabric, why, sizeof(why));
	if (error) {
		nupa_hint("%s", why);
		return error;
	}
	found = nupa_host_of_name(view.fabric, host);
	error = found < 0 ? found : 0;
	view.host = (uint32_t)found;
	if (!error && !made) {
		error = make_tree(&view, root);
		if (error)
			hint_why(root, error);
	} else if (!error) {
		for (uint32_t i = 0; i < nupa_shim_n_files; i++)
			if (nupa_shim_files[i].live && reaches(followed, &nupa_shim_files[i]))
				renew(&view, &nupa_shim_files[i], root);
	}
	nupa_fabric_put(view.fabric);
	return error;
}
