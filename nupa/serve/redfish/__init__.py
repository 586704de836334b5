# SPDX-License-Identifier: BSD-3-Clause
"""The Redfish service: the fabric as resources of Redfish 2025.4.

Knows DMTF's schemas and protocol (DSP0266); never sockets or accounts' secrets.
"""
