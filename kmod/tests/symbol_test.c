// SPDX-License-Identifier: GPL-2.0-only
/* The search for functions: in this very program, in a made-up file, and in damaged ones. */
#include "../symbol.h"

#include <stdio.h>

#include "random.h"

static unsigned int tests, failed;
static const int some_constant = 1;

static void expect(bool holds, const char *what)
{
	tests++;
	if (!holds) {
		failed++;
		printf("not ok - %s\n", what);
	}
}

static int find(const unsigned char *bytes, size_t size, const char *name, loff_t *offset)
{
	struct file file = { bytes, size, 0 };

	return sb_find_function(&file, name, offset);
}

static unsigned char *read_file(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	unsigned char *bytes;

	if (!file)
		abort();
	fseek(file, 0, SEEK_END);
	*size = ftell(file);
	rewind(file);
	bytes = malloc(*size);
	if (fread(bytes, 1, *size, file) != *size)
		abort();
	fclose(file);
	return bytes;
}

static void this_program(void)
{
	size_t size;
	loff_t offset;
	unsigned char *bytes = read_file("/proc/self/exe", &size);

	expect(!find(bytes, size, "main", &offset), "main");
	expect(!find(bytes, size, "this_program", &offset), "a local function");
	/* The same bytes are where the function is in memory. */
	expect(!memcmp(bytes + offset, (void *)(uintptr_t)this_program, 16), "its offset");
	expect(find(bytes, size, "some_constant", &offset) == -ENOENT, "a constant");
	expect(find(bytes, size, "malloc", &offset) == -ENOENT, "an imported function");
	expect(find(bytes, size, "this_progra", &offset) == -ENOENT, "a part of a name");
	expect(find(bytes, size, "his_program", &offset) == -ENOENT, "the end of a name");
	expect(find(bytes, size / 2, "main", &offset) == -ENOEXEC, "half a file");
	expect(find(bytes, 3, "main", &offset) == -ENOEXEC, "three bytes");
	expect(find(bytes, 0, "main", &offset) == -ENOEXEC, "none");
	(void)some_constant;
	free(bytes);
}

/* A small file with every table: damage at a random place is likely to hit a table. */
struct small {
	Elf64_Ehdr header;
	Elf64_Phdr segments[2];
	Elf64_Shdr sections[6];
	Elf64_Sym dynamic[4];
	Elf64_Sym symbols[5];
	uint16_t versions[4];
	char strings[32];
	unsigned char code[64];
};

#define AT(field) offsetof(struct small, field)
/* Where the code is in memory. */
#define ADDRESS(index) (0x1000 + AT(code) + (index))

#define SYMBOL(name, binding, type, section, address)                                      \
	{                                                                                  \
		.st_name = (name), .st_info = ELF64_ST_INFO(binding, type),                \
		.st_shndx = (section), .st_value = (address),                              \
	}

static const struct small sound = {
	.header = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_DYN,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = AT(segments),
		.e_shoff = AT(sections),
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 2,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = 6,
	},
	.segments = {
		{ .p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = 0x100, .p_memsz = 0x100 },
		{ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = AT(code),
		  .p_vaddr = ADDRESS(0), .p_filesz = 64, .p_memsz = 64 },
	},
	.sections = {
		{ .sh_type = SHT_NULL },
		{ .sh_type = SHT_DYNSYM, .sh_offset = AT(dynamic), .sh_size = sizeof(sound.dynamic),
		  .sh_link = 3, .sh_entsize = sizeof(Elf64_Sym) },
		{ .sh_type = SHT_SYMTAB, .sh_offset = AT(symbols), .sh_size = sizeof(sound.symbols),
		  .sh_link = 3, .sh_entsize = sizeof(Elf64_Sym) },
		{ .sh_type = SHT_STRTAB, .sh_offset = AT(strings),
		  .sh_size = sizeof(sound.strings) },
		{ .sh_type = SHT_GNU_versym, .sh_offset = AT(versions),
		  .sh_size = sizeof(sound.versions), .sh_link = 1 },
		{ .sh_type = SHT_PROGBITS },
	},
	/* The strings are: 1 "twice", 7 "local", 13 "data", 18 "absent", 25 "header". */
	.strings = "\0twice\0local\0data\0absent\0header",
	.dynamic = {
		{},
		SYMBOL(1, STB_GLOBAL, STT_FUNC, 5, ADDRESS(8)),
		SYMBOL(1, STB_GLOBAL, STT_FUNC, 5, ADDRESS(16)),
		/* Imported. Its address is that of the stub through which programs call it. */
		SYMBOL(18, STB_GLOBAL, STT_FUNC, SHN_UNDEF, ADDRESS(48)),
	},
	.versions = { 0, 2 | 0x8000, 3, 2 },
	.symbols = {
		{},
		SYMBOL(7, STB_LOCAL, STT_FUNC, 5, ADDRESS(24)),
		SYMBOL(7, STB_WEAK, STT_FUNC, 5, ADDRESS(32)),
		SYMBOL(13, STB_GLOBAL, STT_OBJECT, 5, ADDRESS(40)),
		SYMBOL(25, STB_GLOBAL, STT_FUNC, 5, 0x20),
	},
};

static int find_in(const struct small *small, const char *name, loff_t *offset)
{
	return find((const unsigned char *)small, sizeof(*small), name, offset);
}

static void small_file(void)
{
	struct small changed;
	loff_t offset;

	expect(!find_in(&sound, "twice", &offset) && offset == AT(code) + 16,
	       "the default version of a symbol");
	expect(!find_in(&sound, "local", &offset) && offset == AT(code) + 32,
	       "a global symbol before a local one");
	expect(find_in(&sound, "data", &offset) == -ENOENT, "data");
	expect(find_in(&sound, "absent", &offset) == -ENOENT, "an imported function");
	expect(find_in(&sound, "header", &offset) == -ENOENT, "a function that is not in code");
	expect(find_in(&sound, "none", &offset) == -ENOENT, "no function");

	changed = sound;
	changed.versions[2] |= 0x8000;
	expect(!find_in(&changed, "twice", &offset) && offset == AT(code) + 8,
	       "only old versions: the first");
	changed = sound;
	changed.header.e_shnum = 0;
	expect(find_in(&changed, "twice", &offset) == -ENOENT, "no sections");
	changed = sound;
	changed.header.e_type = ET_REL;
	expect(find_in(&changed, "twice", &offset) == -ENOEXEC, "an object file");
	changed = sound;
	changed.header.e_machine = EM_386;
	expect(find_in(&changed, "twice", &offset) == -ENOEXEC, "another machine");
	changed = sound;
	changed.sections[1].sh_offset = ~0ULL - 8;
	expect(find_in(&changed, "twice", &offset) == -ENOEXEC, "a table beyond all files");
	changed = sound;
	changed.sections[1].sh_size = ~0ULL;
	expect(find_in(&changed, "none", &offset) == -ENOEXEC, "a table that does not end");
	changed = sound;
	changed.sections[3].sh_offset = LLONG_MAX - 4;
	expect(find_in(&changed, "twice", &offset) == -ENOEXEC, "strings beyond all files");
	changed = sound;
	changed.sections[1].sh_link = 77;
	expect(find_in(&changed, "twice", &offset) == -ENOEXEC, "strings in no section");
	changed = sound;
	changed.dynamic[2].st_name = 0xffffffff;
	expect(!find_in(&changed, "twice", &offset) && offset == AT(code) + 8,
	       "a name beyond the strings");
	changed = sound;
	changed.segments[1].p_offset = ~0ULL;
	expect(find_in(&changed, "twice", &offset) == -ENOEXEC, "code beyond the file");
}

static void damaged_files(unsigned int count)
{
	static const char *const names[] = { "twice", "local", "data", "none" };
	unsigned int found = 0;
	loff_t offset;

	while (count--) {
		struct small changed = sound;
		unsigned char *bytes = (unsigned char *)&changed;
		unsigned int edits = 1 + random_below(6);
		int err;

		while (edits--) {
			unsigned int at = random_below(AT(code));

			switch (random_below(3)) {
			case 0:
				bytes[at] = random_number() >> 40;
				break;
			case 1:
				bytes[at] ^= 1 << random_below(8);
				break;
			default:
				/* A whole word at one of the extremes. */
				at &= ~7u;
				memset(bytes + at, random_below(2) ? 0xff : 0, 8);
			}
		}
		err = find(bytes, sizeof(changed) - random_below(2) * random_below(sizeof(changed)),
			   names[random_below(4)], &offset);
		if (err && err != -ENOENT && err != -ENOEXEC)
			expect(false, "an error that is not documented");
		if (!err) {
			found++;
			expect(offset >= 0 && offset < (loff_t)sizeof(changed),
			       "an offset in the file");
		}
	}
	expect(found > 1000, "some damaged files still have their functions");
}

int main(void)
{
	this_program();
	small_file();
	damaged_files(300000);
	printf("%s - functions: %u checks, %u failed\n", failed ? "not ok" : "ok", tests, failed);
	return failed != 0;
}
