/* SPDX-License-Identifier: BSD-3-Clause
 * A wire's medium of frames as a library: tests/unit/wire plays the guest. */
#include "wire/frames/frames.h"

#include <string.h>

#define FACE __attribute__((visibility("default")))

typedef void face_receive(const uint8_t *addresses, uint32_t identification, uint32_t src_port,
			  uint32_t tos, uint32_t ttl, const uint8_t *data, uint32_t bytes);

FACE int face_frames_open(struct nupa_frames **frames, const char *path, const uint8_t *local,
			  const uint8_t *remote, face_receive *receive);
FACE void face_frames_close(struct nupa_frames *frames);
FACE int face_frames_fd(struct nupa_frames *frames);
FACE void face_frames_turn(struct nupa_frames *frames);
FACE int face_frames_reachable(struct nupa_frames *frames);
FACE int face_frames_send(struct nupa_frames *frames, uint32_t identification, uint32_t src_port,
			  uint32_t tos, uint32_t ttl, const uint8_t *data, uint32_t bytes);
FACE void face_frames_counters(struct nupa_frames *frames, uint64_t counters[5]);

static void receive_one(void *context, const struct nupa_frame_packet *packet)
{
	uint8_t addresses[32];

	memcpy(addresses, packet->src, 16);
	memcpy(addresses + 16, packet->dst, 16);
	((face_receive *)context)(addresses, packet->identification, packet->src_port, packet->tos,
				  packet->ttl, packet->data, packet->bytes);
}

int face_frames_open(struct nupa_frames **frames, const char *path, const uint8_t *local,
		     const uint8_t *remote, face_receive *receive)
{
	return nupa_frames_open(frames, path, local, remote, receive_one, (void *)receive);
}

void face_frames_close(struct nupa_frames *frames)
{
	nupa_frames_close(frames);
}

int face_frames_fd(struct nupa_frames *frames)
{
	return nupa_frames_fd(frames);
}

void face_frames_turn(struct nupa_frames *frames)
{
	nupa_frames_turn(frames);
}

int face_frames_reachable(struct nupa_frames *frames)
{
	return nupa_frames_reachable(frames);
}

int face_frames_send(struct nupa_frames *frames, uint32_t identification, uint32_t src_port,
		     uint32_t tos, uint32_t ttl, const uint8_t *data, uint32_t bytes)
{
	const struct nupa_frame_packet packet = {
		.identification = (uint16_t)identification,
		.src_port = (uint16_t)src_port,
		.tos = (uint8_t)tos,
		.ttl = (uint8_t)ttl,
		.data = data,
		.bytes = bytes,
	};

	return nupa_frames_send(frames, &packet);
}

void face_frames_counters(struct nupa_frames *frames, uint64_t counters[5])
{
	memcpy(counters, nupa_frames_counters(frames), sizeof(struct nupa_frames_counters));
}
