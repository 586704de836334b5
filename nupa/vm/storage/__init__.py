# SPDX-License-Identifier: BSD-3-Clause
"""Measures disks and file systems of one guest from another, over RDMA and over TCP.

Knows the kernel's targets and initiators and the networks between guests; never the fabric's
segment.  The scripts beside it run in the guests.
"""
