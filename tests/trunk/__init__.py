# SPDX-License-Identifier: BSD-3-Clause
"""One fabric over several machines, which are network namespaces."""
