# SPDX-License-Identifier: BSD-3-Clause
"""The page of `nupa serve` in Debian's Chromium."""
