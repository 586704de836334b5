# SPDX-License-Identifier: BSD-3-Clause
"""Help, arguments, errors, exit codes, tables and JSON of all commands."""
