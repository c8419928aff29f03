/* SPDX-License-Identifier: BSD-2-Clause */
/* What decoding a capture costs at least: a loop over an mmapped pcap file that parses Ethernet, IP, UDP and BTH and
 * checks the ICRC, keeping nothing but sums. Little-endian pcap, Ethernet, no VLAN, no IPv6 extensions.
 *
 *   decode_limit FILE [ROUNDS]     prints packets/s of the best round
 *
 * Independent of the core on purpose: it is the yardstick, so it must not get slower with it. */
#include <fcntl.h>
#include <isa-l/crc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct sums {
	uint64_t packets, icrc_ok, psn, qp;
};

static uint32_t be16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t le32(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

/* The bytes up to the BTH's end are masked in a copy, the rest is taken as it is. */
static uint32_t icrc(const uint8_t *ip, uint32_t l3_bytes, uint32_t covered)
{
	uint8_t head[8 + 40 + 8 + 12];
	uint32_t masked = l3_bytes + 8 + 12;
	uint8_t *p = head + 8;

	memset(head, 0xff, 8);
	memcpy(p, ip, masked);
	if (l3_bytes == 20) {
		p[1] = p[8] = p[10] = p[11] = 0xff;
	} else {
		p[0] |= 0x0f;
		p[1] = p[2] = p[3] = p[7] = 0xff;
	}
	p[l3_bytes + 6] = p[l3_bytes + 7] = p[l3_bytes + 12] = 0xff;
	return crc32_gzip_refl(crc32_gzip_refl(0, head, 8 + masked), ip + masked, covered - masked);
}

static void decode(const uint8_t *frame, uint32_t captured, struct sums *sums)
{
	uint32_t type, l3_bytes, total;
	const uint8_t *ip = frame + 14, *bth;

	if (captured < 14 + 20 + 8 + 12 + 4)
		return;
	type = be16(frame + 12);
	if (type == 0x0800 && ip[0] == 0x45 && ip[9] == 17) {
		l3_bytes = 20;
		total = be16(ip + 2);
	} else if (type == 0x86dd && ip[6] == 17) {
		l3_bytes = 40;
		total = 40 + be16(ip + 4);
	} else {
		return;
	}
	if (be16(ip + l3_bytes + 2) != 4791 || total > captured - 14 || total < l3_bytes + 24)
		return;
	bth = ip + l3_bytes + 8;
	sums->packets++;
	sums->qp += (uint32_t)bth[5] << 16 | be16(bth + 6);
	sums->psn += (uint32_t)bth[9] << 16 | be16(bth + 10);
	sums->icrc_ok += icrc(ip, l3_bytes, total - 4) == le32(ip + total - 4);
}

static struct sums run(const uint8_t *file, size_t size)
{
	struct sums sums = {0};
	size_t pos = 24;

	while (size - pos >= 16) {
		uint32_t captured = le32(file + pos + 8);

		if (captured > size - pos - 16)
			break;
		decode(file + pos + 16, captured, &sums);
		pos += 16 + captured;
	}
	return sums;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 3, fd;
	struct sums sums = {0};
	struct stat info;
	double best = 1e9;

	if (argc < 2 || (fd = open(argv[1], O_RDONLY)) < 0 || fstat(fd, &info) ||
	    info.st_size < 24) {
		fprintf(stderr, "usage: decode_limit FILE.pcap [ROUNDS]\n");
		return 2;
	}
	for (int i = 0; i < rounds; i++) {
		double start = now_s(), took;
		uint8_t *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		if (file == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
		madvise(file, (size_t)info.st_size, MADV_SEQUENTIAL);
		sums = run(file, (size_t)info.st_size);
		munmap(file, (size_t)info.st_size);
		took = now_s() - start;
		best = took < best ? took : best;
	}
	printf("%llu packets, %llu with a good ICRC, %.0f packets/s (checks: %llx %llx)\n",
	       (unsigned long long)sums.packets, (unsigned long long)sums.icrc_ok,
	       (double)sums.packets / best, (unsigned long long)sums.psn,
	       (unsigned long long)sums.qp);
	return 0;
}
