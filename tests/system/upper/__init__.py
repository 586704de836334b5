# SPDX-License-Identifier: BSD-3-Clause
"""Programs that tests run in guests, as root: protocols of the kernel above an RDMA device."""
