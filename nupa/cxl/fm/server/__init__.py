# SPDX-License-Identifier: BSD-3-Clause
"""The switch's end: what executes commands, its sessions and its socket."""
