# SPDX-License-Identifier: BSD-3-Clause
"""`python -m nupa.cli`: the `nupa` command of this interpreter."""

import sys

from nupa.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
