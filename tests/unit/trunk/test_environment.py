# SPDX-License-Identifier: BSD-3-Clause
"""The environment of the trunk's process: nothing in it leads UCX to our libraries."""

from __future__ import annotations

from pathlib import Path

from nupa.trunk import library
from nupa.trunk.file import ClusterText
from nupa.trunk.start import environment
from tests.unit.trunk.test_cluster_file import MACHINES, TRUNK


def test_it_has_few_variables_and_the_file_s(folder: Path) -> None:
    text = f'topology = "pair"\n{MACHINES}{TRUNK}transports = "tcp,rc_verbs"\ndevices = "eth1"\n'
    cluster = ClusterText("lab.toml", text.replace(MACHINES, "") + MACHINES).parse()
    mine = {
        "HOME": "/home/me",
        "LD_LIBRARY_PATH": "/nupa/lib",
        "LD_PRELOAD": "/nupa/lib/libnupa_shim.so",
        "NUPA_FABRIC": "x",
        "NUPA_HOST": "host0",
        "PATH": "/bin",
        "UCX_LOG_LEVEL": "debug",
        "UCX_TLS": "shm",
    }
    assert environment(mine, cluster) == {
        "HOME": "/home/me",
        "NUPA_DIR": str(folder),
        "PATH": "/bin",
        "UCX_CM_REUSEADDR": "y",
        "UCX_LOG_LEVEL": "debug",
        "UCX_NET_DEVICES": "eth1",
        "UCX_TLS": "tcp,rc_verbs",
    }


def test_a_library_that_is_named_is_the_only_one() -> None:
    assert library.candidates("/opt/ucx/libucp.so.0") == ["/opt/ucx/libucp.so.0"]
    assert library.candidates("")[0] == "libucp.so.0"
