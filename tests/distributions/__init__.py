# SPDX-License-Identifier: BSD-3-Clause
"""Debian's releases over NUPA: programs, each with its own libc, and binary interfaces."""
