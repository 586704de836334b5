# SPDX-License-Identifier: BSD-3-Clause
"""Describes work: messages, collectives, storage and recordings, as phases of transfers.

Knows networks; never engines.
"""
