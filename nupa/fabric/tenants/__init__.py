# SPDX-License-Identifier: BSD-3-Clause
"""Tenants of a fabric, their partitions and members, states of hosts, events.

They live in the segment: csrc/segment/control, which says the rules.  All changes take the
fabric's control lock and are events.
"""
