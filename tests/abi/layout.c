/* SPDX-License-Identifier: BSD-3-Clause
 * Prints the verbs ABI as one header has it: "name value" lines.  With -DNUPA_ABI
 * the header is ours, else the system's; ABI_LEVEL is how young a list to print. */
#ifdef NUPA_ABI
#include "abi/verbs_abi.h"
#else
#include <infiniband/verbs.h>
#endif

#include "abi_list.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Programs reach the extended table from its end, so that is what its fields are
 * measured from: its front grows. */
static long from_anchor(const char *type, size_t offset)
{
	if (strcmp(type, "struct verbs_context") == 0)
		return (long)offset - (long)offsetof(struct verbs_context, context);
	return (long)offset;
}

#define SIZE(type) printf("sizeof(" #type ") %zu\n", sizeof(type));
#define FIELD(type, field)                                                                         \
	printf(#type "." #field " %ld+%zu\n", from_anchor(#type, offsetof(type, field)),           \
	       sizeof(((type *)0)->field));
#define CONSTANT(name) printf(#name " %lld\n", (long long)name);

int main(void)
{
	ABI_V44
#if ABI_LEVEL >= 59
	ABI_V59
#endif
#if ABI_LEVEL >= 65
	ABI_V65
#endif
	return 0;
}
