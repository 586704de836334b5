# SPDX-License-Identifier: BSD-3-Clause
"""Tries what this machine can do: each thing is tried, no version is read."""
