# SPDX-License-Identifier: BSD-3-Clause
"""The switch's end: components that execute commands, sessions, and the socket."""
