/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a fuzz target once over each file, and each file in each directory, that it is given. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct stat info;
	uint8_t *data;
	size_t size;

	if (!file || fstat(fileno(file), &info)) {
		perror(path);
		exit(2);
	}
	data = malloc((size_t)info.st_size + 1);
	size = data ? fread(data, 1, (size_t)info.st_size, file) : 0;
	fclose(file);
	data = realloc(data, size ? size : 1); /* exactly, so that a byte too far is seen */
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 1;
}

static int replay(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	char inside[4096];
	int count = 0;

	if (!directory)
		return replay_file(path);
	while ((entry = readdir(directory))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
		count += replay(inside);
	}
	closedir(directory);
	return count;
}

int main(int argc, char **argv)
{
	int count = 0;

	for (int i = 1; i < argc; i++)
		count += replay(argv[i]);
	printf("%d inputs replayed\n", count);
	return count ? 0 : 2;
}
