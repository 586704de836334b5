# SPDX-License-Identifier: BSD-3-Clause
"""Resources of the CXL switch of `nupa fm serve`, and of its devices."""
