/* SPDX-License-Identifier: BSD-3-Clause
 * Opens umad0 and writes random MADs to agents of random kinds, reads with buffers of any size, and
 * gives random commands.  Prints how many writes were refused and taken, and how many MADs came.
 * An argument is the seed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_mad.h>
#include <rdma/rdma_user_ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ROUNDS 20000
#define MAD_BYTES 256
#define HEADER_BYTES sizeof(struct ib_user_mad_hdr)

static uint64_t state;

static uint64_t next_random(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * UINT64_C(2685821657736338717);
}

static void fill(uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(next_random() >> 32);
}

static int register_any(int fd)
{
	static const uint8_t classes[] = { 0x01, 0x81, 0x03, 0x04, 0x32, 0x09 };
	struct ib_user_mad_reg_req wanted;

	fill((uint8_t *)&wanted, sizeof(wanted));
	wanted.qpn = (uint8_t)(next_random() % 3);
	wanted.mgmt_class = classes[next_random() % sizeof(classes)];
	wanted.mgmt_class_version = 1;
	wanted.rmpp_version = (uint8_t)(next_random() % 2);
	return ioctl(fd, IB_USER_MAD_REGISTER_AGENT, &wanted);
}

static int write_any(int fd)
{
	static const uint8_t classes[] = { 0x01, 0x81, 0x03, 0x04, 0x32 };
	uint8_t bytes[HEADER_BYTES + 4096];
	struct ib_user_mad_hdr *header = (struct ib_user_mad_hdr *)bytes;
	uint8_t *mad = bytes + HEADER_BYTES;
	const size_t lengths[] = { MAD_BYTES, MAD_BYTES, MAD_BYTES, next_random() % 4096, 4096 };
	const size_t length = HEADER_BYTES + lengths[next_random() % 5];

	fill(bytes, sizeof(bytes));
	header->id = (uint32_t)(next_random() % 12);
	header->timeout_ms = (uint32_t)(next_random() % 50);
	header->retries = (uint32_t)(next_random() % 2);
	header->lid = (uint16_t)((next_random() % 8) << 8);
	header->grh_present = next_random() % 4 == 0;
	mad[0] = mad[2] = 1;
	mad[1] = classes[next_random() % 5];
	mad[3] = (uint8_t)(1 + next_random() % 2);
	mad[6] = 0;
	mad[7] = (uint8_t)(next_random() % 4);
	mad[16] = 0;
	mad[17] = (uint8_t)(0x10 + next_random() % 6);
	memset(mad + 32, 0xff, 4);
	/* Nothing is set: other tests of the fabric go on. */
	if (mad[1] != 0x03 && mad[1] != 0x32)
		mad[3] = 1;
	return (int)write(fd, bytes, length - (next_random() % 8 ? 0 : next_random() % length));
}

int main(int argc, char **argv)
{
	const int fd = open("/dev/infiniband/umad0", O_RDWR | O_NONBLOCK);
	uint8_t bytes[HEADER_BYTES + 8192];
	int refused = 0, taken = 0, got = 0;

	state = UINT64_C(88172645463325252) + strtoull(argc > 1 ? argv[1] : "1", NULL, 10);
	if (fd < 0 || ioctl(fd, IB_USER_MAD_ENABLE_PKEY, NULL)) {
		perror("umad0");
		return 1;
	}
	for (int i = 0; i < ROUNDS; i++) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		uint32_t id = (uint32_t)(next_random() % 40);

		if (next_random() % 64 == 0)
			(void)register_any(fd);
		if (next_random() % 512 == 0)
			(void)ioctl(fd, IB_USER_MAD_UNREGISTER_AGENT, &id);
		if (next_random() % 512 == 0)
			(void)ioctl(fd, RDMA_IOCTL_MAGIC << 8 | (next_random() & 0xff), &id);
		if (write_any(fd) < 0)
			refused++;
		else
			taken++;
		while (poll(&ready, 1, 0) == 1) {
			if (read(fd, bytes, next_random() % 4 ? sizeof(bytes) : next_random() % 400) >=
			    (ssize_t)HEADER_BYTES)
				got++;
		}
	}
	printf("refused %d, taken %d, read %d\n", refused, taken, got);
	close(fd);
	return 0;
}
