# SPDX-License-Identifier: BSD-3-Clause
"""Predicts what a program, a collective or a storage cluster takes on another fabric.

Knows profiles, networks, work and three engines; nothing below knows it.  A prediction takes a
work and a network, and returns an Answer, which explains itself.
"""
