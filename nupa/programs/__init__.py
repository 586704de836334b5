# SPDX-License-Identifier: BSD-3-Clause
"""Runs a pair of real programs, a server and a client, on two hosts of a fabric."""
