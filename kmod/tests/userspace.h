/* SPDX-License-Identifier: GPL-2.0-only */
/* What symbol.c needs of the kernel, over a file in memory. */
#ifndef SPEED_BUMP_USERSPACE_H
#define SPEED_BUMP_USERSPACE_H

#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;

struct file {
	const unsigned char *bytes;
	size_t size;
	/* How often it was read from. */
	unsigned long reads;
};

static inline ssize_t kernel_read(struct file *file, void *to, size_t size, loff_t *position)
{
	size_t left;

	file->reads++;
	if (*position < 0)
		return -EINVAL;
	if ((u64)*position >= file->size)
		return 0;
	left = file->size - *position;
	size = size < left ? size : left;
	/* Short reads are allowed; some are made. */
	if (size > 64 && file->reads % 3 == 0)
		size /= 2;
	memcpy(to, file->bytes + *position, size);
	*position += size;
	return size;
}

#define ELF_DATA ELFDATA2LSB
#define elf_check_arch(header) ((header)->e_machine == EM_X86_64)
#define SHT_DYNSYM 11
#define GFP_KERNEL 0
#define kzalloc(size, flags) calloc(1, size)
#define kfree(pointer) free(pointer)
#define min_t(type, a, b) ((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define check_add_overflow(a, b, sum) __builtin_add_overflow(a, b, sum)
#define check_mul_overflow(a, b, product) __builtin_mul_overflow(a, b, product)
#define cond_resched() ((void)0)
#define fatal_signal_pending(task) (0)
#define file_inode(file) (file)
#define i_size_read(file) ((loff_t)(file)->size)

#endif
