# SPDX-License-Identifier: BSD-3-Clause
"""Messages on links: TLPs, CXL.mem messages, flits, and the state of a link."""
