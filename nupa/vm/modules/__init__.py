# SPDX-License-Identifier: BSD-3-Clause
"""Builds NUPA's kernel modules for the guests' kernel.  Knows packages; never guests."""
