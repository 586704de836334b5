# SPDX-License-Identifier: BSD-3-Clause
"""rdma-core's own test suites over NUPA: the files of their packages, none of which is here."""
