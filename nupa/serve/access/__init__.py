# SPDX-License-Identifier: BSD-3-Clause
"""Access to the server: peers, accounts, sessions, TLS.

Knows users and their rights; never what they ask for.
"""
