# SPDX-License-Identifier: BSD-3-Clause
"""Collectives: their algorithms as plans and as transfers, and how a library chooses.

Knows networks and phases; never engines.
"""
