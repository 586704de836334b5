# SPDX-License-Identifier: BSD-3-Clause
"""Errors, files and their owners, quantities, TOML tables, processes: what every layer uses."""
