# SPDX-License-Identifier: BSD-3-Clause
"""`python -m benchmarks`."""

import sys

from benchmarks.run import main

sys.exit(main())
