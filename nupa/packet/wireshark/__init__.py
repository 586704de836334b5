# SPDX-License-Identifier: BSD-3-Clause
"""The Wireshark dissector, nupa.lua, and the tables that it shares with the documentation."""
