# SPDX-License-Identifier: BSD-3-Clause
"""Computes how long a work takes on a network: by stages, by packets or by flows.

Knows work and networks, and returns answers; never formats of files.
"""
