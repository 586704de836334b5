# SPDX-License-Identifier: BSD-3-Clause
"""Memory behind a device: bytes, poison, extents of dynamic capacity, events, attributes."""
