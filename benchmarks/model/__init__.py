# SPDX-License-Identifier: BSD-3-Clause
"""Speed of the performance model; each module is a program, too, which prints JSON."""
