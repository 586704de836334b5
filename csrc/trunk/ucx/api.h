/* SPDX-License-Identifier: BSD-3-Clause
 * The part of UCX's interface that the trunk calls (ucp(3), UCX 1.11 and later).  UCX is loaded
 * when a trunk starts, and its headers are not needed to build NUPA.  Structures have the layout of
 * ucp/api/ucp.h; UCX reads only the fields that a mask names, and appends new ones. */
#ifndef NUPA_TRUNK_UCX_API_H
#define NUPA_TRUNK_UCX_API_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef int8_t nupa_ucs_status; /* UCS_OK 0, UCS_INPROGRESS 1, errors negative */

#define NUPA_UCS_OK 0
#define NUPA_UCS_ERR_BUSY (-15)
#define NUPA_UCS_ERR_CANCELED (-16)
#define NUPA_UCS_ERR_LAST (-100)
#define NUPA_UCS_PTR_IS_ERR(p) ((uintptr_t)(p) >= (uintptr_t)(intptr_t)NUPA_UCS_ERR_LAST)
#define NUPA_UCS_PTR_STATUS(p) ((nupa_ucs_status)(intptr_t)(p))

#define NUPA_UCP_API_MAJOR 1u
#define NUPA_UCP_API_MINOR 11u

#define NUPA_UCP_PARAM_FEATURES 1u
#define NUPA_UCP_PARAM_ESTIMATED_EPS (1u << 6)
#define NUPA_UCP_FEATURE_TAG 1u
#define NUPA_UCP_FEATURE_RMA (1u << 1)
#define NUPA_UCP_FEATURE_WAKEUP (1u << 4)

struct nupa_ucp_params {
	uint64_t field_mask;
	uint64_t features;
	size_t request_size;
	void (*request_init)(void *request);
	void (*request_cleanup)(void *request);
	uint64_t tag_sender_mask;
	int mt_workers_shared;
	size_t estimated_num_eps;
	size_t estimated_num_ppn;
	const char *name;
	uint64_t later[4];
};

struct nupa_ucp_worker_params {
	uint64_t field_mask; /* 0: all defaults, for one thread */
	uint64_t later[24 + 16];
};

#define NUPA_UCP_MEM_MAP_ADDRESS 1u
#define NUPA_UCP_MEM_MAP_LENGTH (1u << 1)

struct nupa_ucp_mem_map_params {
	uint64_t field_mask;
	void *address;
	size_t length;
	uint64_t later[8];
};

struct nupa_ucs_sock_addr {
	const struct sockaddr *addr;
	socklen_t addrlen;
};

#define NUPA_UCP_LISTENER_SOCK_ADDR 1u
#define NUPA_UCP_LISTENER_CONN_HANDLER (1u << 2)

struct nupa_ucp_listener_params {
	uint64_t field_mask;
	struct nupa_ucs_sock_addr sockaddr;
	struct {
		void (*cb)(void *ep, void *arg);
		void *arg;
	} accept_handler;
	struct {
		void (*cb)(void *conn_request, void *arg);
		void *arg;
	} conn_handler;
	uint64_t later[4];
};

#define NUPA_UCP_LISTENER_ATTR_SOCKADDR 1u

struct nupa_ucp_listener_attr {
	uint64_t field_mask;
	struct sockaddr_storage sockaddr;
	uint64_t later[4];
};

#define NUPA_UCP_EP_ERR_HANDLING_MODE (1u << 1)
#define NUPA_UCP_EP_ERR_HANDLER (1u << 2)
#define NUPA_UCP_EP_SOCK_ADDR (1u << 4)
#define NUPA_UCP_EP_FLAGS (1u << 5)
#define NUPA_UCP_EP_CONN_REQUEST (1u << 6)
#define NUPA_UCP_ERR_HANDLING_PEER 1
#define NUPA_UCP_EP_CLIENT_SERVER 1u

struct nupa_ucp_ep_params {
	uint64_t field_mask;
	const void *address;
	int err_mode;
	struct {
		void (*cb)(void *arg, void *ep, nupa_ucs_status status);
		void *arg;
	} err_handler;
	void *user_data;
	unsigned int flags;
	struct nupa_ucs_sock_addr sockaddr;
	void *conn_request;
	const char *name;
	struct nupa_ucs_sock_addr local_sockaddr;
	uint64_t later[4];
};

struct nupa_ucp_tag_recv_info {
	uint64_t sender_tag;
	size_t length;
};

#define NUPA_UCP_OP_CALLBACK (1u << 1)
#define NUPA_UCP_OP_USER_DATA (1u << 2)
#define NUPA_UCP_OP_FLAGS (1u << 4)
#define NUPA_UCP_OP_NO_IMM_CMPL (1u << 16)
#define NUPA_UCP_EP_CLOSE_FORCE 1u

struct nupa_ucp_request_param {
	uint32_t op_attr_mask;
	uint32_t flags;
	void *request;
	union {
		void (*send)(void *request, nupa_ucs_status status, void *user_data);
		void (*recv)(void *request, nupa_ucs_status status,
			     const struct nupa_ucp_tag_recv_info *info, void *user_data);
	} cb;
	uint64_t datatype;
	void *user_data;
	uint64_t later[12];
};

/* Functions by their names in libucp and libucs. */
struct nupa_ucx_api {
	void *ucp; /* of dlopen(3) */
	void (*ucp_get_version)(unsigned int *major, unsigned int *minor, unsigned int *release);
	nupa_ucs_status (*ucp_config_read)(const char *prefix, const char *file, void **config);
	nupa_ucs_status (*ucp_config_modify)(void *config, const char *name, const char *value);
	void (*ucp_config_release)(void *config);
	nupa_ucs_status (*ucp_init_version)(unsigned int major, unsigned int minor,
					    const struct nupa_ucp_params *params,
					    const void *config, void **context);
	void (*ucp_cleanup)(void *context);
	nupa_ucs_status (*ucp_worker_create)(void *context,
					     const struct nupa_ucp_worker_params *params,
					     void **worker);
	void (*ucp_worker_destroy)(void *worker);
	unsigned int (*ucp_worker_progress)(void *worker);
	nupa_ucs_status (*ucp_worker_get_efd)(void *worker, int *fd);
	nupa_ucs_status (*ucp_worker_arm)(void *worker);
	nupa_ucs_status (*ucp_listener_create)(void *worker,
					       const struct nupa_ucp_listener_params *params,
					       void **listener);
	nupa_ucs_status (*ucp_listener_query)(void *listener, struct nupa_ucp_listener_attr *attr);
	nupa_ucs_status (*ucp_listener_reject)(void *listener, void *conn_request);
	void (*ucp_listener_destroy)(void *listener);
	nupa_ucs_status (*ucp_ep_create)(void *worker, const struct nupa_ucp_ep_params *params,
					 void **ep);
	void *(*ucp_ep_close_nbx)(void *ep, const struct nupa_ucp_request_param *param);
	void *(*ucp_tag_send_nbx)(void *ep, const void *buffer, size_t count, uint64_t tag,
				  const struct nupa_ucp_request_param *param);
	void *(*ucp_tag_recv_nbx)(void *worker, void *buffer, size_t count, uint64_t tag,
				  uint64_t mask, const struct nupa_ucp_request_param *param);
	nupa_ucs_status (*ucp_mem_map)(void *context, const struct nupa_ucp_mem_map_params *params,
				       void **memory);
	nupa_ucs_status (*ucp_mem_unmap)(void *context, void *memory);
	nupa_ucs_status (*ucp_rkey_pack)(void *context, void *memory, void **key, size_t *bytes);
	void (*ucp_rkey_buffer_release)(void *key);
	nupa_ucs_status (*ucp_ep_rkey_unpack)(void *ep, const void *key, void **rkey);
	void (*ucp_rkey_destroy)(void *rkey);
	void *(*ucp_put_nbx)(void *ep, const void *buffer, size_t count, uint64_t remote,
			     void *rkey, const struct nupa_ucp_request_param *param);
	void *(*ucp_ep_flush_nbx)(void *ep, const struct nupa_ucp_request_param *param);
	void (*ucp_request_cancel)(void *worker, void *request);
	void (*ucp_request_free)(void *request);
	nupa_ucs_status (*ucp_request_check_status)(void *request);
	const char *(*ucs_status_string)(nupa_ucs_status status);
};

/* Loads the library: 0, -ENOENT, -ELIBBAD, and why. */
int nupa_ucx_load(struct nupa_ucx_api *api, const char *library, char *why, size_t why_bytes);

#endif
