# SPDX-License-Identifier: BSD-3-Clause
"""The soak: many processes do all operations with checked data while some are killed, stopped and
resumed, or end.  `python -m tests.soak` runs it; test_soak.py is a short one."""
