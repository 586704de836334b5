# SPDX-License-Identifier: BSD-3-Clause
"""Means of several folders of tests."""
