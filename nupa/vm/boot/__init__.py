# SPDX-License-Identifier: BSD-3-Clause
"""QEMU, kernel and initramfs of the guests, and the cache that holds them."""
