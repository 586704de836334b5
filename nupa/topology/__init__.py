# SPDX-License-Identifier: BSD-3-Clause
"""Topologies as data: hosts, switches, links and memory; TOML files of them, and presets."""
