# SPDX-License-Identifier: BSD-3-Clause
"""The CXL switch of a fabric with its hosts and devices, and its memory in the fabric's pool."""
