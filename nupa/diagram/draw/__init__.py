# SPDX-License-Identifier: BSD-3-Clause
"""Draws a transfer as a sequence diagram: text or SVG."""
