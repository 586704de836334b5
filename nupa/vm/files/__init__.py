# SPDX-License-Identifier: BSD-3-Clause
"""The topology of a machine, its folder, and the state kept there."""
