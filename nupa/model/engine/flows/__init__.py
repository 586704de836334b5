# SPDX-License-Identifier: BSD-3-Clause
"""Shares links among flows by max-min fairness: classes of equal flows of a plan, or operations."""
