# SPDX-License-Identifier: BSD-3-Clause
"""Accelerators that read and write each other's memory: UALink pods and NVLink devices."""
