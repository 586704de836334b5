/* SPDX-License-Identifier: BSD-3-Clause
 * The fields of connection management's datagrams, in one table that is read and written by. */
#include "engine/cm/wire/mad.h"
#include "base/fields.h"

#define HEADER_BYTES 24u
#define HEADER_BITS (HEADER_BYTES * 8)
#define MAD_CLASS 0x07u
#define MAD_CLASS_VERSION 2u
#define METHOD_SEND 0x03u
#define QPN_FIRST 2u /* 0 and 1 are of management */

/* A field whose value is any, lies between two, or is always the same.  *bit*: of the byte. */
#define WITHIN(kind, member_, byte, bit, bits_, least_, most_)                                     \
	{                                                                                          \
		.attribute = kind, .at = HEADER_BITS + (byte)*8 + (bit), .bits = bits_,            \
		.offset = offsetof(struct nupa_cm_mad, member_),                                   \
		.bytes = sizeof(((struct nupa_cm_mad *)0)->member_), .least = least_,              \
		.most = most_, .name = #member_                                                    \
	}
#define FIELD(kind, member_, byte, bit, bits_)                                                     \
	WITHIN(kind, member_, byte, bit, bits_, 0, UINT64_MAX)
#define HEADER(member_, byte, bits_)                                                               \
	{                                                                                          \
		.at = (byte)*8, .bits = bits_, .offset = offsetof(struct nupa_cm_mad, member_),    \
		.bytes = sizeof(((struct nupa_cm_mad *)0)->member_), .most = UINT64_MAX,           \
		.name = #member_                                                                   \
	}
#define FIXED(name_, byte, bits_, value)                                                           \
	{                                                                                          \
		.at = (byte)*8, .bits = bits_, .least = value, .most = value, .name = name_        \
	}

/* Bytes count from the end of the header, as IBTA's tables do. */
const struct nupa_cm_field nupa_cm_fields[] = {
	/* 13.4.3 */
	FIXED("base_version", 0, 8, 1),
	FIXED("mgmt_class", 1, 8, MAD_CLASS),
	FIXED("class_version", 2, 8, MAD_CLASS_VERSION),
	FIXED("method", 3, 8, METHOD_SEND),
	HEADER(transaction, 8, 64),
	HEADER(attribute, 16, 16),
	/* 12.6.5 */
	WITHIN(NUPA_CM_REQ, local_id, 0, 0, 32, 1, UINT32_MAX),
	FIELD(NUPA_CM_REQ, service, 8, 0, 64),
	FIELD(NUPA_CM_REQ, ca_guid, 16, 0, 64),
	FIELD(NUPA_CM_REQ, qkey, 28, 0, 32),
	WITHIN(NUPA_CM_REQ, qpn, 32, 0, 24, QPN_FIRST, UINT32_MAX),
	FIELD(NUPA_CM_REQ, responder_resources, 35, 0, 8),
	FIELD(NUPA_CM_REQ, eecn, 36, 0, 24),
	FIELD(NUPA_CM_REQ, initiator_depth, 39, 0, 8),
	FIELD(NUPA_CM_REQ, remote_timeout, 43, 0, 5),
	FIELD(NUPA_CM_REQ, transport, 43, 5, 2),
	FIELD(NUPA_CM_REQ, flow_control, 43, 7, 1),
	FIELD(NUPA_CM_REQ, psn, 44, 0, 24),
	FIELD(NUPA_CM_REQ, local_timeout, 47, 0, 5),
	FIELD(NUPA_CM_REQ, retry_count, 47, 5, 3),
	FIELD(NUPA_CM_REQ, pkey, 48, 0, 16),
	WITHIN(NUPA_CM_REQ, path_mtu, 50, 0, 4, 1, 5),
	FIELD(NUPA_CM_REQ, rnr_retry_count, 50, 5, 3),
	FIELD(NUPA_CM_REQ, retries, 51, 0, 4),
	FIELD(NUPA_CM_REQ, srq, 51, 4, 1),
	FIELD(NUPA_CM_REQ, extended_transport, 51, 5, 3),
	FIELD(NUPA_CM_REQ, local_lid, 52, 0, 16),
	FIELD(NUPA_CM_REQ, remote_lid, 54, 0, 16),
	FIELD(NUPA_CM_REQ, local_gid, 56, 0, 128),
	FIELD(NUPA_CM_REQ, remote_gid, 72, 0, 128),
	FIELD(NUPA_CM_REQ, flow_label, 88, 0, 20),
	FIELD(NUPA_CM_REQ, rate, 91, 2, 6),
	FIELD(NUPA_CM_REQ, traffic_class, 92, 0, 8),
	FIELD(NUPA_CM_REQ, hop_limit, 93, 0, 8),
	FIELD(NUPA_CM_REQ, sl, 94, 0, 4),
	FIELD(NUPA_CM_REQ, subnet_local, 94, 4, 1),
	FIELD(NUPA_CM_REQ, ack_timeout, 95, 0, 5),
	/* 12.6.6 */
	WITHIN(NUPA_CM_MRA, local_id, 0, 0, 32, 1, UINT32_MAX),
	WITHIN(NUPA_CM_MRA, remote_id, 4, 0, 32, 1, UINT32_MAX),
	FIELD(NUPA_CM_MRA, about, 8, 0, 2),
	FIELD(NUPA_CM_MRA, service_timeout, 9, 0, 5),
	/* 12.6.7: an end that refuses a request may have no id. */
	FIELD(NUPA_CM_REJ, local_id, 0, 0, 32),
	FIELD(NUPA_CM_REJ, remote_id, 4, 0, 32),
	WITHIN(NUPA_CM_REJ, about, 8, 0, 2, 0, NUPA_CM_ABOUT_OTHER),
	WITHIN(NUPA_CM_REJ, information_bytes, 9, 0, 7, 0, NUPA_CM_REASON_BYTES),
	FIELD(NUPA_CM_REJ, reason, 10, 0, 16),
	FIELD(NUPA_CM_REJ, information, 12, 0, NUPA_CM_REASON_BYTES * 8),
	/* 12.6.8 */
	WITHIN(NUPA_CM_REP, local_id, 0, 0, 32, 1, UINT32_MAX),
	WITHIN(NUPA_CM_REP, remote_id, 4, 0, 32, 1, UINT32_MAX),
	FIELD(NUPA_CM_REP, qkey, 8, 0, 32),
	FIELD(NUPA_CM_REP, qpn, 12, 0, 24),
	FIELD(NUPA_CM_REP, eecn, 16, 0, 24),
	FIELD(NUPA_CM_REP, psn, 20, 0, 24),
	FIELD(NUPA_CM_REP, responder_resources, 24, 0, 8),
	FIELD(NUPA_CM_REP, initiator_depth, 25, 0, 8),
	FIELD(NUPA_CM_REP, target_ack_delay, 26, 0, 5),
	FIELD(NUPA_CM_REP, flow_control, 26, 7, 1),
	FIELD(NUPA_CM_REP, rnr_retry_count, 27, 0, 3),
	FIELD(NUPA_CM_REP, srq, 27, 3, 1),
	FIELD(NUPA_CM_REP, ca_guid, 28, 0, 64),
	/* 12.6.9 */
	WITHIN(NUPA_CM_RTU, local_id, 0, 0, 32, 1, UINT32_MAX),
	WITHIN(NUPA_CM_RTU, remote_id, 4, 0, 32, 1, UINT32_MAX),
	/* 12.6.10 */
	WITHIN(NUPA_CM_DREQ, local_id, 0, 0, 32, 1, UINT32_MAX),
	WITHIN(NUPA_CM_DREQ, remote_id, 4, 0, 32, 1, UINT32_MAX),
	FIELD(NUPA_CM_DREQ, qpn, 8, 0, 24),
	/* 12.6.11 */
	FIELD(NUPA_CM_DREP, local_id, 0, 0, 32),
	WITHIN(NUPA_CM_DREP, remote_id, 4, 0, 32, 1, UINT32_MAX),
	/* 12.11.1 */
	WITHIN(NUPA_CM_SIDR_REQ, local_id, 0, 0, 32, 1, UINT32_MAX),
	FIELD(NUPA_CM_SIDR_REQ, pkey, 4, 0, 16),
	FIELD(NUPA_CM_SIDR_REQ, service, 8, 0, 64),
	/* 12.11.2 */
	WITHIN(NUPA_CM_SIDR_REP, remote_id, 0, 0, 32, 1, UINT32_MAX),
	FIELD(NUPA_CM_SIDR_REP, status, 4, 0, 8),
	WITHIN(NUPA_CM_SIDR_REP, information_bytes, 5, 0, 8, 0, NUPA_CM_REASON_BYTES),
	FIELD(NUPA_CM_SIDR_REP, qpn, 8, 0, 24),
	FIELD(NUPA_CM_SIDR_REP, service, 12, 0, 64),
	FIELD(NUPA_CM_SIDR_REP, qkey, 20, 0, 32),
	FIELD(NUPA_CM_SIDR_REP, information, 24, 0, NUPA_CM_REASON_BYTES * 8),
};
const uint32_t nupa_cm_n_fields = sizeof(nupa_cm_fields) / sizeof(nupa_cm_fields[0]);

/* A11.4: at the head of private data. */
#define IP_BYTES 36u
#define IP_VERSION 1u
#define IP_SOURCE_PORT 2u
#define IP_SOURCE 4u
#define IP_DESTINATION 20u

struct private_data {
	uint16_t attribute;
	uint8_t at, bytes; /* of the message */
	bool ip;
};

static const struct private_data *private_of(uint16_t attribute)
{
	static const struct private_data rows[] = {
		{ NUPA_CM_REQ, 140, 92, true },       { NUPA_CM_REJ, 84, 148, false },
		{ NUPA_CM_REP, 36, 196, false },      { NUPA_CM_RTU, 8, 224, false },
		{ NUPA_CM_MRA, 10, 222, false },      { NUPA_CM_DREQ, 12, 220, false },
		{ NUPA_CM_DREP, 8, 224, false },      { NUPA_CM_SIDR_REQ, 16, 216, true },
		{ NUPA_CM_SIDR_REP, 96, 136, false },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].attribute == attribute)
			return &rows[i];
	return NULL;
}

uint32_t nupa_cm_data_bytes(uint16_t attribute)
{
	const struct private_data *private = private_of(attribute);

	return private ? private->bytes - (private->ip ? IP_BYTES : 0) : 0;
}

static uint64_t load(const void *member, uint32_t bytes)
{
	switch (bytes) {
	case 1:
		return *(const uint8_t *)member;
	case 2:
		return *(const uint16_t *)member;
	case 4:
		return *(const uint32_t *)member;
	default:
		return *(const uint64_t *)member;
	}
}

static void store(void *member, uint32_t bytes, uint64_t value)
{
	switch (bytes) {
	case 0:
		break;
	case 1:
		*(uint8_t *)member = (uint8_t)value;
		break;
	case 2:
		*(uint16_t *)member = (uint16_t)value;
		break;
	case 4:
		*(uint32_t *)member = (uint32_t)value;
		break;
	default:
		*(uint64_t *)member = value;
		break;
	}
}

void nupa_cm_mad_write(const struct nupa_cm_mad *mad, uint8_t to[NUPA_CM_MAD_BYTES])
{
	const struct private_data *private = private_of(mad->attribute);
	uint8_t *data;

	memset(to, 0, NUPA_CM_MAD_BYTES);
	for (uint32_t i = 0; i < nupa_cm_n_fields; i++) {
		const struct nupa_cm_field *field = &nupa_cm_fields[i];
		const void *member = (const char *)mad + field->offset;

		if (field->attribute && field->attribute != mad->attribute)
			continue;
		if (field->bits > 64)
			memcpy(to + field->at / 8, member, field->bytes);
		else
			nupa_bits_put(to, field->at, field->bits,
				      field->bytes ? load(member, field->bytes) : field->least);
	}
	if (!private)
		return;
	data = to + HEADER_BYTES + private->at;
	if (private->ip && mad->ip_version) {
		data[IP_VERSION] = (uint8_t)(mad->ip_version << 4);
		nupa_be16_put(data + IP_SOURCE_PORT, mad->source_port);
		memcpy(data + IP_SOURCE, mad->source, sizeof(mad->source));
		memcpy(data + IP_DESTINATION, mad->destination, sizeof(mad->destination));
		data += IP_BYTES;
	}
	memcpy(data, mad->data, nupa_cm_data_bytes(mad->attribute));
}

/* False: a version that is none, or one that A11 does not define yet. */
static bool read_ip(const uint8_t *data, struct nupa_cm_mad *mad)
{
	mad->ip_version = data[IP_VERSION] >> 4;
	mad->source_port = nupa_be16_get(data + IP_SOURCE_PORT);
	memcpy(mad->source, data + IP_SOURCE, sizeof(mad->source));
	memcpy(mad->destination, data + IP_DESTINATION, sizeof(mad->destination));
	return data[0] == 0 && (mad->ip_version == 4 || mad->ip_version == 6);
}

static bool read_field(const struct nupa_cm_field *field, const uint8_t *from,
		       struct nupa_cm_mad *mad)
{
	void *member = (char *)mad + field->offset;
	uint64_t value;

	if (field->bits > 64) {
		memcpy(member, from + field->at / 8, field->bytes);
		return true;
	}
	value = nupa_bits_get(from, field->at, field->bits);
	store(member, field->bytes, value);
	return value >= field->least && value <= field->most;
}

bool nupa_cm_mad_read(const uint8_t *from, uint32_t bytes, struct nupa_cm_mad *mad)
{
	const struct private_data *private;
	const uint8_t *data;

	memset(mad, 0, sizeof(*mad));
	if (bytes != NUPA_CM_MAD_BYTES)
		return false;
	for (uint32_t i = 0; i < nupa_cm_n_fields; i++) {
		const struct nupa_cm_field *field = &nupa_cm_fields[i];

		/* The attribute is in the table before all fields that it decides about. */
		if (field->attribute && field->attribute != mad->attribute)
			continue;
		if (!read_field(field, from, mad))
			return false;
	}
	private = private_of(mad->attribute);
	if (!private)
		return false;
	data = from + HEADER_BYTES + private->at;
	if (private->ip && nupa_cm_is_ip_service(mad->service)) {
		if (!read_ip(data, mad))
			return false;
		data += IP_BYTES;
	}
	memcpy(mad->data, data, nupa_cm_data_bytes(mad->attribute));
	return true;
}
