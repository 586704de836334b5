# SPDX-License-Identifier: BSD-3-Clause
"""Wires between this machine and the kernel's rdma_rxe in a QEMU guest, which is their judge."""
