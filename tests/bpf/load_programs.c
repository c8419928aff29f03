/* SPDX-License-Identifier: BSD-2-Clause */
/* The init of a guest that is there for its verifier alone: loads each BPF object in /, says how that went, and goes. */
#include <bpf/libbpf.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>

static char verifier[1 << 20];

static int silent(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

/* The last lines that the verifier said, on one. */
static void say_end(void)
{
	size_t length = strlen(verifier);
	char *end = verifier + (length > 600 ? length - 600 : 0);

	for (char *at = end; *at; at++) {
		if (*at == '\n')
			*at = ' ';
	}
	printf("%s", end);
}

static void try(const char *name)
{
	struct bpf_object *object = bpf_object__open_file(name, NULL);
	struct bpf_program *program;
	int err;

	if (!object) {
		printf("program %s: is no object\n", name);
		return;
	}
	bpf_object__for_each_program(program, object)
	{
		bpf_program__set_log_level(program, 1 | 4);
		bpf_program__set_log_buf(program, verifier, sizeof(verifier));
	}
	verifier[0] = 0;
	err = bpf_object__load(object);
	printf("program %s: %s ", name, err ? "refused" : "loaded");
	if (err)
		say_end();
	printf("\n");
	bpf_object__close(object);
}

int main(void)
{
	DIR *root = opendir("/");
	struct dirent *entry;

	/* libbpf asks there what the kernel can do. */
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sys", "/sys", "sysfs", 0, NULL);
	libbpf_set_print(silent);
	while (root && (entry = readdir(root))) {
		if (strstr(entry->d_name, ".bpf.o"))
			try(entry->d_name);
	}
	fflush(stdout);
	reboot(RB_POWER_OFF);
	return 1;
}
