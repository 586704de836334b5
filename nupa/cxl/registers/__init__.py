# SPDX-License-Identifier: BSD-3-Clause
"""Register blocks as tables of rows: configuration space, component and device registers."""
