# SPDX-License-Identifier: BSD-3-Clause
"""Measures NUPA beside the machine's own limits; `make bench` runs it."""
