# SPDX-License-Identifier: BSD-3-Clause
"""The fabric manager: messages, the switch's end that executes them, and a manager's end.

Knows the FM API of CXL 3.1 7.6; never registers, nor what a host does with what is bound to it.
"""
