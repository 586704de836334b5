# SPDX-License-Identifier: BSD-3-Clause
"""The table of tests/programs between two machines: what runs on a fabric runs over a wire."""
