# SPDX-License-Identifier: BSD-3-Clause
"""Decodes many packets at once, in C, into columns."""
