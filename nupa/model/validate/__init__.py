# SPDX-License-Identifier: BSD-3-Clause
"""Compares predictions with published measurements, file by file.

Knows work, networks, the engines and the files of nupa/model/calibration; nothing of the model but
its command knows it.
"""
