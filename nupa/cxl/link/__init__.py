# SPDX-License-Identifier: BSD-3-Clause
"""Links: the numbers of functions and of CXL.mem messages, and the state of a link."""
