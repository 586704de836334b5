# SPDX-License-Identifier: BSD-3-Clause
"""Tests across processes: each end of a connection is a process of its own, which may be killed."""
