# SPDX-License-Identifier: BSD-3-Clause
"""Training and inference of transformers, as computations and collectives of groups of ranks.

Knows networks, collectives and phases; never engines.
"""
