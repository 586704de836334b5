# SPDX-License-Identifier: BSD-3-Clause
"""A fabric's switch with its hosts and devices, and its memory in the fabric's pool."""
