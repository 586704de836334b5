# SPDX-License-Identifier: BSD-3-Clause
"""`nupa top`: tables of a snapshot, the choice of what is seen, and the program on a terminal."""
