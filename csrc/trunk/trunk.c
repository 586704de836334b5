/* SPDX-License-Identifier: BSD-3-Clause
 * The trunk's life: opened, run, stopped. */
#include "trunk/trunk.h"

#include "base/explain.h"

#include <errno.h>

int nupa_trunk_open(struct nupa_fabric *fabric, const struct nupa_trunk_config *config,
		    struct nupa_trunk **out, char *why, size_t why_bytes)
{
	(void)out;
	if (!nupa_fabric_has_trunk(fabric))
		return nupa_explain(-EINVAL, why, why_bytes, "fabric %s is of one machine",
				    nupa_fabric_name(fabric));
	if (config->n_machines != nupa_fabric_n_machines(fabric))
		return nupa_explain(
		    -EINVAL, why, why_bytes, "%u addresses for the %u machines of fabric %s",
		    config->n_machines, nupa_fabric_n_machines(fabric), nupa_fabric_name(fabric));
	return nupa_explain(-ENOSYS, why, why_bytes, "trunks are not built yet");
}

uint32_t nupa_trunk_port(const struct nupa_trunk *trunk)
{
	(void)trunk;
	return 0;
}

const char *nupa_trunk_engine(const struct nupa_trunk *trunk)
{
	(void)trunk;
	return "";
}

int nupa_trunk_run(struct nupa_trunk *trunk, char *why, size_t why_bytes)
{
	(void)trunk;
	return nupa_explain(-ENOSYS, why, why_bytes, "trunks are not built yet");
}

void nupa_trunk_stop(struct nupa_trunk *trunk)
{
	(void)trunk;
}

void nupa_trunk_close(struct nupa_trunk *trunk)
{
	(void)trunk;
}
