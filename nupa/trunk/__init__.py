# SPDX-License-Identifier: BSD-3-Clause
"""One fabric over several trusted machines: cluster files, and the process that joins them.

Knows machines, ssh, Slurm, the trunk's process and its state; never how lines cross the network:
csrc/trunk moves them.  Import what you use: `nupa.trunk.file` (cluster files), `nupa.trunk.up` and
`nupa.trunk.down` (this machine's part), `nupa.trunk.remote` (all machines), `nupa.trunk.state`.
"""
