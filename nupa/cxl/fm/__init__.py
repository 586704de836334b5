# SPDX-License-Identifier: BSD-3-Clause
"""The fabric manager: its messages, what executes them on a switch, a socket, and a client.

Knows the FM API of CXL 3.1 7.6; never registers, nor what a host does with what is bound to it.
"""
