# SPDX-License-Identifier: BSD-3-Clause
"""Other people's programs and libraries over the drop-in libraries."""
