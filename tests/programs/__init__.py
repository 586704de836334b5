# SPDX-License-Identifier: BSD-3-Clause
"""The real RDMA programs of ibverbs-utils and perftest, unmodified, under `nupa run`."""
