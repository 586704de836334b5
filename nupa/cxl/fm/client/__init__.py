# SPDX-License-Identifier: BSD-3-Clause
"""A manager's end: commands as methods, over a socket or in one process."""
