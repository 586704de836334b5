# SPDX-License-Identifier: BSD-3-Clause
"""Cluster files: TOML, checked key by key.  docs/trunk.md lists the keys.

The text of the files is kept: it is the order that other machines are sent.
"""

from __future__ import annotations

import shlex
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from nupa.topology import file as topology_file
from nupa.topology import toml_table
from nupa.topology.error import TopologyError
from nupa.topology.toml_table import Table
from nupa.topology.topology import Topology
from nupa.trunk import cluster
from nupa.trunk.cluster import ENGINES, PORT, Cluster, Machine, TrunkSettings

_PORT_MAX = 65535
_NAME_BYTES_MAX = 253  # RFC 1035: a domain name
#: Letters that names of machines, users and words of UCX have; none is special to a shell.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:,@%/^")


class ClusterText(NamedTuple):
    """The files of a cluster: *text*, its path *source*, the text of its topology's file if it
    names one, and the machines where others decide them (Slurm)."""

    source: str
    text: str
    topology: str = ""

    def parse(self, machines: tuple[Machine, ...] = ()) -> Cluster:
        """Parses it; *machines* are used if the file names none.

        TopologyError names file, table, key and the values that are allowed.
        """
        table = toml_table.document(self.text.encode(), self.source)
        try:
            return self._cluster(table, machines)
        except TopologyError as error:
            raise TopologyError(f"{self.source}: {error}") from error

    def _cluster(self, top: Table, machines: tuple[Machine, ...]) -> Cluster:
        trunks = top.tables("trunk")
        by = [table for table in trunks if table.has("by")]
        if len(by) != 1:
            raise TopologyError(
                f'there are {len(by)} [[trunk]] tables with `by`: write one, by = "{ENGINES[0]}"'
            )
        settings = _settings(by[0])
        named = tuple(_machine(table, settings.port) for table in top.tables("machine"))
        if not named and not machines:
            raise TopologyError(
                "there is no [[machine]]: name each one, with `name` and `address`, or start it "
                "by srun, which tells its nodes"
            )
        which = top.any("topology", None)
        stem = Path(self.source).stem
        if which is None:
            links = [table for table in trunks if table not in by]
            topology = topology_file.of_table(top, stem, trunks=links)
            name = topology.name
        else:
            name = top.text("name", stem)
            top.done()
            topology = self._named_topology(which)
        given = named or machines
        digest = sha256("\0".join((self.text, self.topology)).encode()).digest()
        return cluster.checked(
            name,
            [machine._replace(port=machine.port or settings.port) for machine in given],
            topology,
            settings,
            digest,
        )

    def _named_topology(self, which: object) -> Topology:
        if not isinstance(which, str):
            raise TopologyError(f"the file: `topology` is {which!r}, not a string")
        if is_preset(which):
            return topology_file.load(which)
        return topology_file.parse(self.topology.encode(), which, Path(which).stem)


def is_preset(which: str) -> bool:
    """Tells whether `topology` means a preset, as the option of `nupa up` does."""
    return "/" not in which and not which.endswith(".toml")


def read(path: str | Path) -> ClusterText:
    """Reads a cluster file, and the file of its topology, relative to it.

    TopologyError: one cannot be read, or is not TOML.
    """
    path = Path(path)
    data = toml_table.read(path)
    values = toml_table.parse(data, str(path))
    which = values.get("topology")
    topology = ""
    if isinstance(which, str) and not is_preset(which):
        there = path.parent / which
        topology_data = toml_table.read(there)
        toml_table.parse(topology_data, str(there))
        topology = topology_data.decode()
    return ClusterText(str(path), data.decode(), topology)


def _settings(table: Table) -> TrunkSettings:
    by = table.text("by", required=True)
    if by not in ENGINES:
        raise TopologyError(f"{table.title}: `by` is {by!r}: choose {' or '.join(ENGINES)}")
    settings = TrunkSettings(
        by,
        table.number("port", 1, _PORT_MAX, PORT),
        table.text("library"),
        _plain(table, "transports", "tcp"),
        _plain(table, "devices"),
    )
    table.done()
    return settings


def _machine(table: Table, port: int) -> Machine:
    name = _plain(table, "name", required=True)
    address = _plain(table, "address", name)
    if len(address) > _NAME_BYTES_MAX:
        raise TopologyError(
            f"{table.title}: `address` has {len(address)} letters: at most {_NAME_BYTES_MAX}"
        )
    _check_address(table, address)
    hosts = table.get("hosts", list)
    if hosts is not None and (not hosts or not all(isinstance(host, str) for host in hosts)):
        raise TopologyError(f"{table.title}: `hosts` is {hosts!r}: name hosts of the topology")
    machine = Machine(
        name,
        address,
        tuple(hosts or ()),
        _plain(table, "ssh"),
        _words(table, "command", "nupa"),
        table.number("port", 1, _PORT_MAX, port),
    )
    table.done()
    return machine


def _check_address(table: Table, address: str) -> None:
    if not address.replace(".", "").isdecimal() and ":" not in address:
        return  # a name, which is looked up where it is used
    try:
        found = ip_address(address)
    except ValueError:
        raise TopologyError(
            f"{table.title}: `address` is {address!r}: give an address of IPv4 or IPv6, or a name"
        ) from None
    if found.is_unspecified or found.is_multicast:
        raise TopologyError(
            f"{table.title}: `address` is {address}: give the address that the others reach it by"
        )


def _plain(table: Table, key: str, default: str = "", required: bool = False) -> str:
    """Returns a word that is no option and nothing special to a shell."""
    value = table.text(key, default, required)
    wrong = next((letter for letter in value if letter not in _PLAIN), "")
    if wrong or value.startswith("-"):
        raise TopologyError(
            f"{table.title}: `{key}` is {value!r}: use letters, digits and . _ - : , @ % / ^, "
            f"and no '-' in front"
        )
    return value


def _words(table: Table, key: str, default: str) -> tuple[str, ...]:
    value = table.text(key, default)
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise TopologyError(f"{table.title}: `{key}` is {value!r}: {error}") from None
    if not words:
        raise TopologyError(f"{table.title}: `{key}` is empty: name the program")
    return tuple(words)
