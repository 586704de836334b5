/* SPDX-License-Identifier: BSD-3-Clause
 * Resolves a name by each call of libc; prints "CALL ADDRESS" lines. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

static void say(const char *call, int family, const void *address)
{
	char text[INET6_ADDRSTRLEN] = "none";

	if (address)
		inet_ntop(family, address, text, sizeof(text));
	printf("%s %s\n", call, text);
}

static void say_entry(const char *call, const char *name, const struct hostent *entry)
{
	const int right = entry && !strcmp(entry->h_name, name);

	say(call, entry ? entry->h_addrtype : AF_INET, right ? entry->h_addr_list[0] : NULL);
}

static void say_info(const char *call, const char *name, int family, int flags)
{
	struct addrinfo hints = { .ai_family = family,
				  .ai_flags = flags,
				  .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;

	if (getaddrinfo(name, "7471", &hints, &found)) {
		say(call, AF_INET, NULL);
		return;
	}
	if (flags & AI_CANONNAME && strcmp(found->ai_canonname, name) != 0)
		printf("%s has the canonical name %s\n", name, found->ai_canonname);
	if (found->ai_family == AF_INET6)
		say(call, AF_INET6, &((struct sockaddr_in6 *)found->ai_addr)->sin6_addr);
	else
		say(call, AF_INET, &((struct sockaddr_in *)found->ai_addr)->sin_addr);
	freeaddrinfo(found);
}

int main(int argc, char **argv)
{
	const char *name = argv[argc - 1];
	struct hostent entry, *found = NULL;
	char buffer[1024];
	int error;

	say_info("getaddrinfo", name, AF_UNSPEC, AI_CANONNAME);
	say_info("getaddrinfo4", name, AF_INET, 0);
	say_info("getaddrinfo6", name, AF_INET6, 0);
	say_info("getaddrinfo_numeric", name, AF_UNSPEC, AI_NUMERICHOST);
	say_entry("gethostbyname", name, gethostbyname(name));
	say_entry("gethostbyname2_4", name, gethostbyname2(name, AF_INET));
	say_entry("gethostbyname2_6", name, gethostbyname2(name, AF_INET6));
	gethostbyname_r(name, &entry, buffer, sizeof(buffer), &found, &error);
	say_entry("gethostbyname_r", name, found);
	gethostbyname2_r(name, AF_INET6, &entry, buffer, sizeof(buffer), &found, &error);
	say_entry("gethostbyname2_r_6", name, found);
	return 0;
}
