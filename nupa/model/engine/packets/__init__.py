# SPDX-License-Identifier: BSD-3-Clause
"""Runs operations packet by packet, in C (csrc/model), by the protocol of each fabric."""
