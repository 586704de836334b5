/* SPDX-License-Identifier: BSD-3-Clause
 * rsockets for tests: see rs_end.h. */
#include "tests/rdmacm/rs_end.h"
#include "tests/support/end.h"
#include "segment/segment.h"

#include <arpa/inet.h>
#include <string.h>

void rs_use_fabric(struct nupa_fabric *fabric)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fabric->fd);
	CHECK_EQ(setenv("NUPA_FABRIC", path, 1), 0);
	CHECK_EQ(setenv("NUPA_HOST", "host0", 1), 0);
}

int rs_listener(uint16_t *port)
{
	struct sockaddr_storage storage;
	struct sockaddr *addr = cm_addr(&storage, "10.0.0.1", 0);
	socklen_t bytes = sizeof(storage);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	CHECK_EQ(rbind(fd, addr, sizeof(struct sockaddr_in)), 0);
	CHECK_EQ(rlisten(fd, 64), 0);
	CHECK_EQ(rgetsockname(fd, addr, &bytes), 0);
	*port = ntohs(((struct sockaddr_in *)(void *)addr)->sin_port);
	return fd;
}

int rs_connect(int fd, const char *host, uint16_t port)
{
	struct sockaddr_storage storage;

	return rconnect(fd, cm_addr(&storage, host, port), sizeof(struct sockaddr_in));
}

void rs_pair(int fds[2])
{
	uint16_t port;
	int listener = rs_listener(&port);

	fds[0] = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(fds[0] >= 0);
	CHECK_EQ(rs_connect(fds[0], "10.0.0.1", port), 0);
	fds[1] = raccept(listener, NULL, NULL);
	CHECK(fds[1] >= 0);
	CHECK_EQ(rclose(listener), 0);
}

static uint8_t byte_of(uint64_t at, uint8_t stream)
{
	return (uint8_t)((at * 7) ^ (at >> 8) ^ stream);
}

void rs_pattern(uint8_t *bytes, size_t n, uint64_t at, uint8_t stream)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = byte_of(at + i, stream);
}

bool rs_is_pattern(const uint8_t *bytes, size_t n, uint64_t at, uint8_t stream)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] != byte_of(at + i, stream))
			return false;
	return true;
}
