# SPDX-License-Identifier: BSD-3-Clause
"""Caches: CXL.cache as tables, a device's cache, host and device bias, the snoop filter."""
