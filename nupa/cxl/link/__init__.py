# SPDX-License-Identifier: BSD-3-Clause
"""Links: TLPs, the numbers of CXL.mem messages, and the state of a link."""
