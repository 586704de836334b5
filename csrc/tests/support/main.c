/* SPDX-License-Identifier: BSD-3-Clause
 * The main of test programs that define none: the linker takes it from the archive only then. */
#include "tests/support/runner.h"

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
