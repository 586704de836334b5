/* SPDX-License-Identifier: BSD-3-Clause
 * Opens each library of its arguments and writes how many devices its ibv_get_device_list sees. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
		void **(*get)(int *n) = NULL;
		void (*put)(void **list) = NULL;
		int n = -1;

		if (library) {
			*(void **)&get = dlsym(library, "ibv_get_device_list");
			*(void **)&put = dlsym(library, "ibv_free_device_list");
		}
		if (get && put)
			put(get(&n));
		else
			fprintf(stderr, "%s\n", dlerror());
		printf("%d\n", n);
	}
	return 0;
}
