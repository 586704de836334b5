# SPDX-License-Identifier: BSD-3-Clause
"""A host that uses CXL memory as Linux does: bus walk, regions, windows, reads and writes."""
