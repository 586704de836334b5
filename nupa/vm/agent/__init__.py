# SPDX-License-Identifier: BSD-3-Clause
"""The agent in each guest: its wire format, a connection to it, a command relayed through it."""
