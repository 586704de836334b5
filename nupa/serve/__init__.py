# SPDX-License-Identifier: BSD-3-Clause
"""`nupa serve`: a fabric over HTTP: Redfish, metrics, a page.

Knows HTTP, TLS, accounts and the forms of answers; never how the fabric keeps its state, which it
reads from snapshots and changes by the calls of nupa.fabric.
"""
