# SPDX-License-Identifier: BSD-3-Clause
"""NUPA in QEMU guests, as a user has it: unmodified programs, the netdev, deaths.

`make test-vm` runs all of it; the smoke alone is part of `make check`.
"""
