# SPDX-License-Identifier: BSD-3-Clause
"""Devices: type 2 and type 3 endpoints, expanders, multi-logical devices."""
