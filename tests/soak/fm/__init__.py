# SPDX-License-Identifier: BSD-3-Clause
"""The fabric manager's soak.  Several managers bind, unbind and move memory at random.  Devices
come and go, and hosts read and write checked data all the while.  `python -m tests.soak.fm` runs
it; tests/unit/cxl/fm/test_soak.py is a short one."""
