// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Security modules decide about regions, with a name or without, as about any file. The
 * security module here is a BPF program.
 */
#include <linux/bpf.h>

#include "names_test.h"

#define BTF	"/sys/kernel/btf/vmlinux"
#define HOOK	"bpf_lsm_inode_getattr"

/* See Documentation/bpf/btf.rst. */
#define KIND_FUNCTION	12

struct btf_header {
	uint16_t magic;
	uint8_t version;
	uint8_t flags;
	uint32_t header_bytes;
	uint32_t type_offset;
	uint32_t type_bytes;
	uint32_t string_offset;
	uint32_t string_bytes;
};

struct btf_type {
	uint32_t name;
	uint32_t info;
	uint32_t size;
};

/* The bytes that follow a type of this kind, and those for each of its members. */
static const struct {
	uint8_t once;
	uint8_t each;
} kinds[] = {
	[1] = { .once = 4 }, [3] = { .once = 12 }, [4] = { .each = 12 }, [5] = { .each = 12 },
	[6] = { .each = 8 }, [13] = { .each = 8 }, [14] = { .once = 4 }, [15] = { .each = 12 },
	[17] = { .once = 4 }, [19] = { .each = 12 },
};

/* Returns the number of the kernel's function of this name, or a negative errno. */
static int find_function(const char *types, size_t length, const char *names, const char *name)
{
	size_t at = 0;
	int id = 1;

	for (; at + sizeof(struct btf_type) <= length; id++) {
		const struct btf_type *type = (const void *)(types + at);
		unsigned int kind = type->info >> 24 & 31;

		if (kind == KIND_FUNCTION && !strcmp(names + type->name, name))
			return id;
		at += sizeof(*type);
		if (kind < sizeof(kinds) / sizeof(kinds[0]))
			at += kinds[kind].once + kinds[kind].each * (type->info & 0xffff);
	}
	return -ENOENT;
}

static int find_hook(void)
{
	int fd = must(open(BTF, O_RDONLY | O_CLOEXEC)), id;
	const struct btf_header *header;
	struct stat stat;
	char *content;
	ssize_t got;
	size_t done;

	must(fstat(fd, &stat));
	content = malloc(stat.st_size);
	must(content ? 0 : -ENOMEM);
	for (done = 0; done < (size_t)stat.st_size; done += got) {
		got = read(fd, content + done, stat.st_size - done);
		must(got > 0 ? 0 : -EIO);
	}
	close(fd);
	header = (const void *)content;
	id = find_function(content + header->header_bytes + header->type_offset,
			   header->type_bytes,
			   content + header->header_bytes + header->string_offset, HOOK);
	free(content);
	return id;
}

static int bpf(int command, union bpf_attr *attributes)
{
	int fd = syscall(SYS_bpf, command, attributes, sizeof(*attributes));

	return fd < 0 ? -errno : fd;
}

/* Refuses to this process what the hook is asked about, until the descriptor is closed. */
static int refuse(int hook)
{
	const struct bpf_insn program[] = {
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_pid_tgid },
		{ .code = BPF_ALU64 | BPF_RSH | BPF_K, .dst_reg = BPF_REG_0, .imm = 32 },
		{ .code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 2,
		  .imm = getpid() },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0 },
		{ .code = BPF_JMP | BPF_EXIT },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = -EACCES },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_LSM,
		.expected_attach_type = BPF_LSM_MAC,
		.attach_btf_id = hook,
		.insns = (uintptr_t)program,
		.insn_cnt = sizeof(program) / sizeof(program[0]),
		.license = (uintptr_t)"GPL",
	};
	union bpf_attr attach = { .raw_tracepoint.prog_fd = must(bpf(BPF_PROG_LOAD, &load)) };
	int link = must(bpf(BPF_RAW_TRACEPOINT_OPEN, &attach));

	close(attach.raw_tracepoint.prog_fd);
	return link;
}

TEST_F(names, security_modules_decide)
{
	int files[3], hook, link, i;
	struct stat stat;

	if (access(BTF, R_OK))
		SKIP(return, "this kernel has no " BTF);
	hook = must(find_hook());
	files[0] = must(memfd_create("any file", MFD_CLOEXEC));
	files[1] = must(create_lazy(self->device, 1));
	files[2] = must(make_named(AT "/region", 1));
	link = refuse(hook);
	for (i = 0; i < 3; i++) {
		EXPECT_ERRNO(EACCES, fstat(files[i], &stat)) {
			TH_LOG("file %d", i);
		}
	}
	close(link);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, fstat(files[i], &stat));
		close(files[i]);
	}
	EXPECT_EQ(0, unlink(AT "/region"));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
