# SPDX-License-Identifier: BSD-3-Clause
"""Fabrics of two machines, joined by a wire: real programs, losses, deaths, captures, tunnels."""
