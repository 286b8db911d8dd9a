// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where a function begins in an ELF file. The file is read in pieces of a few KiB, however large
 * its tables are, and everything in it is checked. Only functions count: a breakpoint in data would
 * corrupt it. What .dynsym exports is preferred to .symtab, and a global symbol to a local one.
 *
 * Builds in user space too, where it is tested with damaged files.
 */
#ifdef __KERNEL__
#include <linux/elf.h>
#include <linux/fs.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#endif

#include "symbol.h"

#ifndef SHT_GNU_versym
#define SHT_GNU_versym 0x6fffffff
#endif
/* A symbol of this version is only for programs that were linked to it long ago. */
#define VERSION_IS_HIDDEN 0x8000

#define SYMBOLS_AT_ONCE 128
#define NAMES_AT_ONCE 2048

/* How good a symbol is. The best may end the search. */
enum rank {
	RANK_NONE,
	RANK_LOCAL,
	RANK_OLD_VERSION,
	RANK_GLOBAL,
};

struct search {
	struct file *file;
	const char *name;
	/* With the NUL. */
	size_t name_size;
	Elf64_Ehdr header;
	enum rank rank;
	Elf64_Addr address;
	Elf64_Sym symbols[SYMBOLS_AT_ONCE];
	/* A part of the string table; symbols that are neighbours often have names that are. */
	char names[NAMES_AT_ONCE];
	loff_t names_start;
	size_t names_length;
};

/* A symbol table with what belongs to it. */
struct table {
	Elf64_Shdr symbols;
	Elf64_Shdr strings;
	Elf64_Shdr versions;
	bool has_versions;
};

/* Reads @size bytes. A file that ends before is no sound ELF file. */
static int read_exactly(struct file *file, void *to, size_t size, u64 start)
{
	loff_t position = start;
	ssize_t got;

	if (start > (u64)LLONG_MAX - size)
		return -ENOEXEC;
	while (size) {
		/* A hostile file can have this go on for long: it must be possible to kill it. */
		cond_resched();
		if (fatal_signal_pending(current))
			return -EINTR;
		got = kernel_read(file, to, size, &position);
		if (got < 0)
			return got;
		if (!got)
			return -ENOEXEC;
		to += got;
		size -= got;
	}
	return 0;
}

/* Reads the @index-th record of a table at @start. */
static int read_record(struct file *file, void *to, size_t size, u64 start, u64 index)
{
	u64 position;

	if (check_mul_overflow(index, (u64)size, &position) ||
	    check_add_overflow(position, start, &position))
		return -ENOEXEC;
	return read_exactly(file, to, size, position);
}

static int read_section(struct search *search, unsigned int index, Elf64_Shdr *section)
{
	if (index >= search->header.e_shnum)
		return -ENOEXEC;
	return read_record(search->file, section, sizeof(*section), search->header.e_shoff, index);
}

static int read_header(struct search *search)
{
	Elf64_Ehdr *header = &search->header;
	int err = read_exactly(search->file, header, sizeof(*header), 0);

	if (err)
		return err;
	if (memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64 ||
	    header->e_ident[EI_DATA] != ELF_DATA || !elf_check_arch(header))
		return -ENOEXEC;
	if (header->e_type != ET_EXEC && header->e_type != ET_DYN)
		return -ENOEXEC;
	if (header->e_phnum && header->e_phentsize != sizeof(Elf64_Phdr))
		return -ENOEXEC;
	if (header->e_shnum && header->e_shentsize != sizeof(Elf64_Shdr))
		return -ENOEXEC;
	return 0;
}

/* 1 if the string at @offset of the string table is the name, 0 if not. */
static int has_name(struct search *search, const Elf64_Shdr *strings, u32 offset)
{
	u64 start;
	size_t length;
	int err;

	if (offset >= strings->sh_size || strings->sh_size - offset < search->name_size)
		return 0;
	if (check_add_overflow(strings->sh_offset, (u64)offset, &start) || start > LLONG_MAX)
		return -ENOEXEC;
	if ((loff_t)start < search->names_start ||
	    start + search->name_size > search->names_start + search->names_length) {
		length = min_t(u64, NAMES_AT_ONCE, strings->sh_size - offset);
		search->names_length = 0;
		err = read_exactly(search->file, search->names, length, start);
		if (err)
			return err;
		search->names_start = start;
		search->names_length = length;
	}
	return !memcmp(search->names + (start - search->names_start), search->name,
		       search->name_size);
}

static int rank(struct search *search, const struct table *table, const Elf64_Sym *symbol,
		u64 index)
{
	u16 version;
	int err;

	if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL)
		return RANK_LOCAL;
	if (!table->has_versions)
		return RANK_GLOBAL;
	err = read_record(search->file, &version, sizeof(version), table->versions.sh_offset,
			  index);
	if (err)
		return err;
	return version & VERSION_IS_HIDDEN ? RANK_OLD_VERSION : RANK_GLOBAL;
}

/* Weighs one symbol against what has been found. */
static int consider(struct search *search, const struct table *table, const Elf64_Sym *symbol,
		    u64 index)
{
	int found;

	/* An undefined one is imported: its code is in another file. */
	if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF ||
	    !symbol->st_value)
		return 0;
	found = has_name(search, &table->strings, symbol->st_name);
	if (found <= 0)
		return found;
	found = rank(search, table, symbol, index);
	if (found < 0)
		return found;
	if (found > search->rank) {
		search->rank = found;
		search->address = symbol->st_value;
	}
	return 0;
}

static int search_table(struct search *search, const struct table *table)
{
	const u64 count = table->symbols.sh_size / sizeof(Elf64_Sym);
	u64 start, position;
	unsigned int i, length;
	int err;

	search->names_length = 0;
	for (start = 0; start < count; start += length) {
		length = min_t(u64, SYMBOLS_AT_ONCE, count - start);
		if (check_add_overflow(table->symbols.sh_offset, start * sizeof(Elf64_Sym),
				       &position))
			return -ENOEXEC;
		err = read_exactly(search->file, search->symbols, length * sizeof(Elf64_Sym),
				   position);
		if (err)
			return err;
		for (i = 0; i < length; i++) {
			err = consider(search, table, &search->symbols[i], start + i);
			if (err || search->rank == RANK_GLOBAL)
				return err;
		}
	}
	return 0;
}

/* Reads the table that section @index is, with its string table and its versions. */
static int read_table(struct search *search, unsigned int index, struct table *table)
{
	unsigned int i;
	int err;

	if (table->symbols.sh_entsize != sizeof(Elf64_Sym))
		return -ENOEXEC;
	err = read_section(search, table->symbols.sh_link, &table->strings);
	if (err)
		return err;
	if (table->strings.sh_type != SHT_STRTAB)
		return -ENOEXEC;
	table->has_versions = false;
	if (table->symbols.sh_type != SHT_DYNSYM)
		return 0;
	for (i = 0; i < search->header.e_shnum; i++) {
		err = read_section(search, i, &table->versions);
		if (err)
			return err;
		if (table->versions.sh_type == SHT_GNU_versym && table->versions.sh_link == index) {
			table->has_versions = true;
			return 0;
		}
	}
	return 0;
}

static int search_tables(struct search *search, u32 type)
{
	struct table table;
	unsigned int i;
	int err;

	for (i = 0; i < search->header.e_shnum && search->rank != RANK_GLOBAL; i++) {
		err = read_section(search, i, &table.symbols);
		if (err)
			return err;
		if (table.symbols.sh_type != type)
			continue;
		err = read_table(search, i, &table);
		if (err)
			return err;
		err = search_table(search, &table);
		if (err)
			return err;
	}
	return 0;
}

/* Turns the address into an offset. It must be in code that is mapped from the file. */
static int locate(struct search *search, loff_t *offset)
{
	Elf64_Phdr segment;
	unsigned int i;
	u64 inside, position;
	int err;

	for (i = 0; i < search->header.e_phnum; i++) {
		err = read_record(search->file, &segment, sizeof(segment), search->header.e_phoff,
				  i);
		if (err)
			return err;
		if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X) ||
		    search->address < segment.p_vaddr)
			continue;
		inside = search->address - segment.p_vaddr;
		if (inside >= segment.p_filesz)
			continue;
		if (check_add_overflow(segment.p_offset, inside, &position) ||
		    position >= (u64)i_size_read(file_inode(search->file)))
			return -ENOEXEC;
		*offset = position;
		return 0;
	}
	return -ENOENT;
}

/**
 * sb_find_function - finds a function of an ELF file
 * @file: the file
 * @name: the function's symbol
 * @offset: where in the file its first instruction is
 *
 * Return: 0; -ENOEXEC if this is no ELF file of this kind of machine, or a damaged one; -ENOENT if
 * it has no such function; -EINTR if the task is being killed; -ENOMEM; or what reading failed
 * with.
 */
int sb_find_function(struct file *file, const char *name, loff_t *offset)
{
	struct search *search = kzalloc(sizeof(*search), GFP_KERNEL);
	int err;

	if (!search)
		return -ENOMEM;
	search->file = file;
	search->name = name;
	search->name_size = strlen(name) + 1;
	err = read_header(search);
	if (!err)
		err = search_tables(search, SHT_DYNSYM);
	if (!err && search->rank != RANK_GLOBAL)
		err = search_tables(search, SHT_SYMTAB);
	if (!err)
		err = search->rank == RANK_NONE ? -ENOENT : locate(search, offset);
	kfree(search);
	return err;
}
