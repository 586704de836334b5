# SPDX-License-Identifier: BSD-3-Clause
"""Tries what this machine can do, rather than reading versions.  `checks` is the table."""
