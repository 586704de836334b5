# SPDX-License-Identifier: BSD-3-Clause
"""Real programs in the network namespaces of `nupa net`, and what may go wrong there."""
