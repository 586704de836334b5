/* SPDX-License-Identifier: BSD-3-Clause
 * The calls of libc that resolve names: those of the fabric's hosts have the hosts' addresses.  Any
 * other name costs a comparison with each of them. */
#define _GNU_SOURCE
#include "shim/shim.h"

#include "shim/call.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

/* The address as text, which every resolver takes in place of a name. */
static const char *address_of(const struct nupa_shim_host *host, int family,
			      char text[INET6_ADDRSTRLEN])
{
	const uint32_t be = htonl(host->far_ipv4 ? host->far_ipv4 : host->ipv4);

	/* The machine of a wire has one address; a resolver refuses it in another family. */
	if (host->wired && (family == AF_INET6 || !host->far_ipv4))
		return inet_ntop(AF_INET6, host->far_ipv6, text, INET6_ADDRSTRLEN);
	return family == AF_INET6 ? inet_ntop(AF_INET6, host->ipv6, text, INET6_ADDRSTRLEN)
				  : inet_ntop(AF_INET, &be, text, INET6_ADDRSTRLEN);
}

NUPA_SHIM_WRAPPER int getaddrinfo(const char *node, const char *service,
				  const struct addrinfo *hints, struct addrinfo **found)
{
	const struct nupa_shim_host *host = NULL;
	char text[INET6_ADDRSTRLEN], *name;
	int error;
	CALL(getaddrinfo);

	if (node && !(hints && hints->ai_flags & AI_NUMERICHOST))
		host = nupa_shim_host_of_name(node);
	if (!host)
		return next(node, service, hints, found);
	error = next(address_of(host, hints ? hints->ai_family : AF_UNSPEC, text), service, hints,
		     found);
	/* freeaddrinfo(3) frees it. */
	if (!error && (*found)->ai_canonname && (name = strdup(host->name))) {
		free((*found)->ai_canonname);
		(*found)->ai_canonname = name;
	}
	return error;
}

static struct hostent *named(struct hostent *found, const struct nupa_shim_host *host)
{
	if (found && host)
		found->h_name = (char *)host->name;
	return found;
}

#define LOOK_UP(family)                                                                            \
	const struct nupa_shim_host *host = nupa_shim_host_of_name(name);                          \
	char text[INET6_ADDRSTRLEN];                                                               \
                                                                                                   \
	if (host)                                                                                  \
	name = address_of(host, family, text)

NUPA_SHIM_WRAPPER struct hostent *gethostbyname(const char *name)
{
	CALL(gethostbyname);
	LOOK_UP(AF_INET);

	return named(next(name), host);
}

NUPA_SHIM_WRAPPER struct hostent *gethostbyname2(const char *name, int family)
{
	CALL(gethostbyname2);
	LOOK_UP(family);

	return named(next(name, family), host);
}

NUPA_SHIM_WRAPPER int gethostbyname_r(const char *name, struct hostent *entry, char *buffer,
				      size_t bytes, struct hostent **found, int *error)
{
	int result;
	CALL(gethostbyname_r);
	LOOK_UP(AF_INET);

	result = next(name, entry, buffer, bytes, found, error);
	if (!result)
		named(*found, host);
	return result;
}

NUPA_SHIM_WRAPPER int gethostbyname2_r(const char *name, int family, struct hostent *entry,
				       char *buffer, size_t bytes, struct hostent **found,
				       int *error)
{
	int result;
	CALL(gethostbyname2_r);
	LOOK_UP(family);

	result = next(name, family, entry, buffer, bytes, found, error);
	if (!result)
		named(*found, host);
	return result;
}
