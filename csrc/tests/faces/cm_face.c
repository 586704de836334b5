/* SPDX-License-Identifier: BSD-3-Clause
 * csrc/engine/cm/wire's datagrams as a library: tests/unit/wire compares them with real ones, with
 * the specification's tables and with tshark. */
#include "engine/cm/wire/message.h"
#include "engine/cm/wire/steer.h"

#define FACE __attribute__((visibility("default")))

FACE uint32_t face_cm_field(uint32_t i, uint32_t *attribute, uint32_t *at, uint32_t *bits,
			    const char **name);
FACE void face_cm_write(uint32_t attribute, const uint64_t *values, const uint8_t *bytes,
			uint8_t *out);
FACE bool face_cm_again(const uint8_t *in, uint32_t bytes, uint8_t *out);
FACE bool face_cm_value(const uint8_t *in, uint32_t i, uint64_t *value);
FACE bool face_cm_through(const uint8_t *in, uint8_t *out);
FACE bool face_cm_refuse(const uint8_t *in, uint8_t *out);
FACE int face_cm_steer(const uint8_t *in, uint32_t bytes, uint32_t *facts);

/* The number of fields. */
uint32_t face_cm_field(uint32_t i, uint32_t *attribute, uint32_t *at, uint32_t *bits,
		       const char **name)
{
	if (i < nupa_cm_n_fields) {
		*attribute = nupa_cm_fields[i].attribute;
		*at = nupa_cm_fields[i].at;
		*bits = nupa_cm_fields[i].bits;
		*name = nupa_cm_fields[i].name;
	}
	return nupa_cm_n_fields;
}

/* `values`: of each field of the table.  `bytes`: for fields and data of more than 64 bits. */
void face_cm_write(uint32_t attribute, const uint64_t *values, const uint8_t *bytes, uint8_t *out)
{
	struct nupa_cm_mad mad = { 0 };

	for (uint32_t i = 0; i < nupa_cm_n_fields; i++) {
		const struct nupa_cm_field *field = &nupa_cm_fields[i];
		char *member = (char *)&mad + field->offset;

		if (field->attribute && field->attribute != attribute)
			continue;
		if (field->bits > 64)
			memcpy(member, bytes, field->bytes);
		else
			memcpy(member, &values[i], field->bytes); /* little-endian */
	}
	mad.attribute = (uint16_t)attribute;
	mad.ip_version = 4;
	memcpy(mad.data, bytes, sizeof(mad.data));
	nupa_cm_mad_write(&mad, out);
}

bool face_cm_again(const uint8_t *in, uint32_t bytes, uint8_t *out)
{
	struct nupa_cm_mad mad;

	if (!nupa_cm_mad_read(in, bytes, &mad))
		return false;
	nupa_cm_mad_write(&mad, out);
	return true;
}

bool face_cm_value(const uint8_t *in, uint32_t i, uint64_t *value)
{
	struct nupa_cm_mad mad;

	*value = 0;
	if (!nupa_cm_mad_read(in, NUPA_CM_MAD_BYTES, &mad) || nupa_cm_fields[i].bits > 64)
		return false;
	memcpy(value, (char *)&mad + nupa_cm_fields[i].offset, nupa_cm_fields[i].bytes);
	return true;
}

/* Through the message of the engine, and back. */
bool face_cm_through(const uint8_t *in, uint8_t *out)
{
	struct nupa_cm_mad mad, back;
	enum cm_message message;
	struct cm_ends ends = { 0 };
	struct cm_wire wire;
	uint8_t reason;

	if (!nupa_cm_mad_read(in, NUPA_CM_MAD_BYTES, &mad))
		return false;
	message = cm_message_of(&mad, &reason, &wire);
	if (!message)
		return false;
	ends.transaction = wire.transaction;
	ends.ca_guid = mad.ca_guid;
	ends.local_id = mad.local_id;
	ends.remote_id = mad.remote_id;
	ends.remote_qpn = mad.qpn;
	ends.path_mtu = wire.path_mtu;
	ends.ack_timeout = wire.ack_timeout;
	ends.about = mad.about;
	memcpy(ends.local_gid, mad.local_gid, 16);
	memcpy(ends.remote_gid, mad.remote_gid, 16);
	if (message == CM_SIDR_REP) {
		wire.ps = (uint16_t)(mad.service >> 16);
		wire.src_port = (uint16_t)mad.service;
	}
	cm_mad_of(message, reason, &wire, &ends, &back);
	nupa_cm_mad_write(&back, out);
	return true;
}

bool face_cm_refuse(const uint8_t *in, uint8_t *out)
{
	return nupa_cm_refuse(in, NUPA_CM_MAD_BYTES, out);
}

/* slot, space, port, P_Key, IPv6. */
int face_cm_steer(const uint8_t *in, uint32_t bytes, uint32_t *facts)
{
	struct nupa_cm_target target;
	const int way = nupa_cm_steer(in, bytes, &target);

	facts[0] = target.slot;
	facts[1] = target.space;
	facts[2] = target.port;
	facts[3] = target.pkey;
	facts[4] = target.ipv6;
	return way;
}
