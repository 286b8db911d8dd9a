// SPDX-License-Identifier: GPL-2.0-only
/*
 * speed_bump: slows functions of programs down, by a breakpoint whose handler spins. This file is
 * the module's beginning and end, and its files in /sys/kernel/speed_bump.
 */
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/sysfs.h>
#include <linux/version.h>

#include "command.h"
#include "listing.h"
#include "targets.h"

#ifndef CONFIG_64BIT
#error "speed_bump counts in words of 64 bits, and reads 64-bit ELF files"
#endif

static struct kobject *folder;

/* Numbers may end in a newline, as echo writes them. */
static size_t without_newline(const char *text, size_t length)
{
	return length && text[length - 1] == '\n' ? length - 1 : length;
}

static ssize_t enabled_show(struct kobject *kobj, struct kobj_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%d\n", READ_ONCE(sb_enabled));
}

static ssize_t enabled_store(struct kobject *kobj, struct kobj_attribute *attribute,
			     const char *text, size_t length)
{
	if (without_newline(text, length) != 1 || (text[0] != '0' && text[0] != '1'))
		return -EINVAL;
	WRITE_ONCE(sb_enabled, text[0] == '1');
	return length;
}

static ssize_t default_delay_ns_show(struct kobject *kobj, struct kobj_attribute *attribute,
				     char *text)
{
	return sysfs_emit(text, "%llu\n", READ_ONCE(sb_default_delay_ns));
}

static ssize_t default_delay_ns_store(struct kobject *kobj, struct kobj_attribute *attribute,
				      const char *text, size_t length)
{
	u64 delay_ns;
	int err = sb_parse_delay(text, without_newline(text, length), &delay_ns);

	if (err)
		return err;
	WRITE_ONCE(sb_default_delay_ns, delay_ns);
	return length;
}

static ssize_t targets_store(struct kobject *kobj, struct kobj_attribute *attribute,
			     const char *text, size_t length)
{
	struct sb_command command;
	int err = sb_parse_command(text, length, &command);

	if (!err)
		err = sb_targets_execute(&command);
	return err ? err : length;
}

static ssize_t stats_show(struct kobject *kobj, struct kobj_attribute *attribute, char *text)
{
	struct sb_summary summary;

	sb_targets_summarize(&summary);
	return sysfs_emit(text,
			  "enabled: %d\n"
			  "targets: %u\n"
			  "total_hits: %llu\n"
			  "total_delay_ns: %llu\n"
			  "total_interrupted: %llu\n",
			  READ_ONCE(sb_enabled), summary.targets, summary.counts.hits,
			  summary.counts.injected_ns, summary.counts.interrupted);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
static ssize_t targets_list_read(struct file *file, struct kobject *kobj,
				 const struct bin_attribute *attribute, char *to, loff_t offset,
				 size_t size)
#else
static ssize_t targets_list_read(struct file *file, struct kobject *kobj,
				 struct bin_attribute *attribute, char *to, loff_t offset,
				 size_t size)
#endif
{
	return sb_listing_read(file, to, offset, size);
}

static struct kobj_attribute enabled = __ATTR_RW(enabled);
static struct kobj_attribute default_delay_ns = __ATTR_RW(default_delay_ns);
static struct kobj_attribute targets = __ATTR_WO(targets);
static struct kobj_attribute stats = __ATTR_RO(stats);

static struct attribute *attributes[] = {
	&enabled.attr,
	&default_delay_ns.attr,
	&targets.attr,
	&stats.attr,
	NULL,
};

static const struct attribute_group files = {
	.attrs = attributes,
};

/* What an ordinary attribute shows ends after a page. */
static const struct bin_attribute targets_list = {
	.attr = { .name = "targets_list", .mode = 0444 },
	.read = targets_list_read,
};

static int __init speed_bump_init(void)
{
	int err;

	folder = kobject_create_and_add("speed_bump", kernel_kobj);
	if (!folder)
		return -ENOMEM;
	err = sysfs_create_group(folder, &files);
	if (!err)
		err = sysfs_create_bin_file(folder, &targets_list);
	/* Takes the files along. */
	if (err)
		kobject_put(folder);
	return err;
}

static void __exit speed_bump_exit(void)
{
	/* The spins end first: the next steps wait for users of the files and for handlers. */
	WRITE_ONCE(sb_enabled, false);
	sb_targets_close();
	sysfs_remove_bin_file(folder, &targets_list);
	sysfs_remove_group(folder, &files);
	sb_targets_reap();
	sb_listing_close();
	kobject_put(folder);
}

module_init(speed_bump_init);
module_exit(speed_bump_exit);
MODULE_DESCRIPTION("Slows functions of running programs down by an exact amount");
MODULE_LICENSE("GPL");
