// SPDX-License-Identifier: GPL-2.0-only
/*
 * A target's file: opens it, finds the function in it, and later reports whether its
 * path still leads there. A breakpoint belongs to a file, not to a path: after an upgrade, new
 * processes run another file.
 */
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/namei.h>
#include <linux/stat.h>

#include "binary.h"
#include "symbol.h"
#include "targets.h"

static int find_in_file(struct sb_target *target, struct file *file)
{
	struct kstat stat;
	int err;

	err = file_permission(file, MAY_READ);
	if (err)
		return err;
	/* Another process is writing it: an instruction may become something else at any time. */
	if (inode_is_open_for_write(target->inode))
		return -EBUSY;
	err = vfs_getattr(&target->file, &stat, STATX_SIZE | STATX_MTIME, AT_STATX_SYNC_AS_STAT);
	if (err)
		return err;
	target->size = stat.size;
	target->modified = stat.mtime;
	return sb_find_function(file, target->symbol, &target->offset);
}

/**
 * sb_binary_find - finds a target's file, and its function in there
 * @target: a target with a path and a symbol
 *
 * Sets the target's file and its inode, which sb_binary_put() gives back, and its offset.
 *
 * Return: 0; -ENOENT without such a file or function; -ENOEXEC if the file is not ELF that this
 * machine runs; -EBUSY while it is open for writing; or the error of looking it up or reading
 * it.
 */
int sb_binary_find(struct sb_target *target)
{
	struct file *file;
	int err;

	err = kern_path(target->path, LOOKUP_FOLLOW, &target->file);
	if (err)
		return err;
	/* Opening a device or a pipe may block, or have effects. */
	err = -ENOEXEC;
	if (!d_is_reg(target->file.dentry))
		goto put;
	target->inode = d_real_inode(target->file.dentry);
	ihold(target->inode);
	file = dentry_open(&target->file, O_RDONLY | O_LARGEFILE, current_cred());
	err = PTR_ERR_OR_ZERO(file);
	if (err)
		goto put;
	err = find_in_file(target, file);
	fput(file);
	if (!err)
		return 0;
put:
	sb_binary_put(target);
	return err;
}

/** sb_binary_put - releases what sb_binary_find() has found, if anything. */
void sb_binary_put(struct sb_target *target)
{
	iput(target->inode);
	target->inode = NULL;
	path_put(&target->file);
	target->file = (struct path){};
}

/**
 * sb_binary_state - the state of a target's file
 * @target: the target
 *
 * The path is looked up in the caller's mount namespace. The process that added the target may have
 * been in another one.
 *
 * Return: "current"; "missing" if the path leads nowhere; "replaced" if it leads to another file;
 * "modified" if the file was written to.
 */
const char *sb_binary_state(const struct sb_target *target)
{
	struct path path;
	struct kstat stat;
	const char *state = "current";

	if (kern_path(target->path, LOOKUP_FOLLOW, &path))
		return "missing";
	if (!d_is_reg(path.dentry) || d_real_inode(path.dentry) != target->inode)
		state = "replaced";
	else if (vfs_getattr(&path, &stat, STATX_SIZE | STATX_MTIME, AT_STATX_DONT_SYNC))
		state = "missing";
	else if (stat.size != target->size || !timespec64_equal(&stat.mtime, &target->modified))
		state = "modified";
	path_put(&path);
	return state;
}
