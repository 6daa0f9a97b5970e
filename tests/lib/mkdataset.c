/* SPDX-License-Identifier: BSD-3-Clause */
/* mkdataset DIR FILES MEAN_BYTES FOLDERS SEED [SIGMA]: files of lognormal size around a mean in
 * FOLDERS class folders, with bytes that only the seed and the number of the file decide. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t state;

static uint64_t random_u64(void)
{
	uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static double random_normal(void)
{
	double u = ((double)(random_u64() >> 11) + 1) / 9007199254740993.0;
	double v = (double)(random_u64() >> 11) / 9007199254740992.0;

	return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static int write_file(const char *path, size_t size, uint64_t *buffer, size_t words)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	const char *bytes = (const char *)buffer;

	if (fd < 0)
		return -1;
	while (size) {
		size_t part = size < words * 8 ? size : words * 8;

		for (size_t i = 0; i < (part + 7) / 8; i++)
			buffer[i] = random_u64();
		if (write(fd, bytes, part) != (ssize_t)part)
			return -1;
		size -= part;
	}
	return close(fd);
}

int main(int argc, char **argv)
{
	if (argc < 6) {
		fprintf(stderr, "usage: mkdataset DIR FILES MEAN_BYTES FOLDERS SEED [SIGMA]\n");
		return 2;
	}
	unsigned long files = strtoul(argv[2], NULL, 10), folders = strtoul(argv[4], NULL, 10);
	double mean = strtod(argv[3], NULL), sigma = argc > 6 ? strtod(argv[6], NULL) : 0.5;
	uint64_t seed = strtoull(argv[5], NULL, 10);
	size_t words = 16384;
	uint64_t *buffer = malloc(words * 8);
	char path[4096];

	if (!folders || !buffer)
		return 2;
	mkdir(argv[1], 0755);
	for (unsigned long k = 0; k < folders; k++) {
		snprintf(path, sizeof path, "%s/class%03lu", argv[1], k);
		if (mkdir(path, 0755) < 0 && errno != EEXIST) {
			perror(path);
			return 1;
		}
	}
	for (unsigned long i = 0; i < files; i++) {
		state = seed * 1000003 + i;
		double size = exp(log(mean) - sigma * sigma / 2 + sigma * random_normal());

		snprintf(path, sizeof path, "%s/class%03lu/img%06lu.png", argv[1], i % folders, i);
		if (write_file(path, (size_t)size, buffer, words) < 0) {
			perror(path);
			return 1;
		}
	}
	free(buffer);
	return 0;
}
