# SPDX-License-Identifier: BSD-3-Clause
"""The CXL switch: physical ports, virtual switches and their bridges, port-based routing."""
