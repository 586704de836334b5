# SPDX-License-Identifier: BSD-3-Clause
"""Finds the transfers of a capture, and decodes the records of one of them."""
