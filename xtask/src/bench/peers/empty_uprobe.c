/*
 * Attaches a BPF program that does nothing to a place in a file, for one process: `empty_uprobe FILE OFFSET PID`.
 * Says when it is there, and stays until the end of its input.
 *
 * By a uprobe_multi link where the kernel has them (6.6), else by a perf event. Constants that older headers lack
 * are written out (include/uapi/linux/bpf.h).
 */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRACE_UPROBE_MULTI 48

/* `link_create` of `union bpf_attr` for uprobe_multi. */
struct link {
	uint32_t program, target, attach_type, flags;
	uint64_t path, offsets, reference_counters, cookies;
	uint32_t count, multi_flags, pid, rest;
};

static int load(uint32_t attach_type)
{
	struct bpf_insn program[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attributes = {
		.prog_type = BPF_PROG_TYPE_KPROBE,
		.insns = (uintptr_t)program,
		.insn_cnt = 2,
		.license = (uintptr_t)"GPL",
		.expected_attach_type = attach_type,
	};
	return syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof attributes);
}

static int attach_multi(const char *file, uint64_t offset, int pid)
{
	union {
		struct link link;
		union bpf_attr attributes;
	} request = {.link = {0}};
	int program = load(TRACE_UPROBE_MULTI);
	if (program < 0)
		return -1;
	request.link = (struct link){
		.program = program,
		.attach_type = TRACE_UPROBE_MULTI,
		.path = (uintptr_t)file,
		.offsets = (uintptr_t)&offset,
		.count = 1,
		.pid = pid,
	};
	return syscall(SYS_bpf, BPF_LINK_CREATE, &request, sizeof request);
}

static int attach_event(const char *file, uint64_t offset, int pid)
{
	struct perf_event_attr event = {.size = sizeof event, .config1 = (uintptr_t)file, .config2 = offset};
	FILE *type = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	int program = load(0), fd;
	if (program < 0 || !type || fscanf(type, "%u", &event.type) != 1)
		return -1;
	fclose(type);
	fd = syscall(SYS_perf_event_open, &event, pid, -1, -1, 0);
	if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_SET_BPF, program) || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0))
		return -1;
	return fd;
}

int main(int count, char **arguments)
{
	char byte;
	if (count != 4)
		return 2;
	uint64_t offset = strtoull(arguments[2], NULL, 16);
	int pid = atoi(arguments[3]);
	if (attach_multi(arguments[1], offset, pid) < 0 && attach_event(arguments[1], offset, pid) < 0) {
		perror("cannot attach an empty program");
		return 1;
	}
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	while (read(0, &byte, 1) == 1)
		;
	return 0;
}
