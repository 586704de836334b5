# SPDX-License-Identifier: BSD-3-Clause
"""The web page and its stream of updates.

Knows what a browser draws; never how it is measured.
"""
