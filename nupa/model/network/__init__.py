# SPDX-License-Identifier: BSD-3-Clause
"""Describes networks: levels of profiles, the paths over them, and graphs of ports and links.

Knows profiles; never work or engines.
"""
