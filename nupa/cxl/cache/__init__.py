# SPDX-License-Identifier: BSD-3-Clause
"""Caches: CXL.cache as tables, the cache of a device, host bias and device bias, the snoop
filter."""
