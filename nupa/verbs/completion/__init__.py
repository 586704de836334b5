# SPDX-License-Identifier: BSD-3-Clause
"""Completions, and the channels that report them."""
