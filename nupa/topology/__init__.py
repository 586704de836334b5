# SPDX-License-Identifier: BSD-3-Clause
"""Racks as data: hosts, switches, links and memory; TOML files of them, and presets."""
