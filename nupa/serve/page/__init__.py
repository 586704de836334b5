# SPDX-License-Identifier: BSD-3-Clause
"""The web page and its stream of updates.

Knows what a browser draws, from snapshots and short captures; never how state is kept, nor Redfish.
"""
