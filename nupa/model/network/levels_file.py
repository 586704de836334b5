# SPDX-License-Identifier: BSD-3-Clause
"""Networks by levels as TOML: the user's own files.

name = "my-cluster"

[[level]]                    # the lowest first
name = "server"
groups = 8                   # of the level below; of endpoints, for the first
profile = "nvlink4"          # a name of `nupa model profiles`, or a file
medium = "dac"               # none: what the profile holds
length_m = 1.5

[[level]]
name = "leaf"
groups = 32
profile = "ib-ndr"
rails = true                 # switches, taper, planes, nics, stacked, mesh, rails: as NetworkLevel
"""

from __future__ import annotations

from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.network.path import Cable
from nupa.model.profile.profile import load
from nupa.topology.toml_table import Table
from nupa.topology.topology import TopologyError

GROUPS_MAX = 1 << 24
_REAL_MAX = 1e9


def network(table: Table, source: str, name: str) -> Network:
    """Returns the network of a parsed file.  ModelError names *source*, level and key."""
    try:
        made = table.text("name", name)
        levels = tuple(_level(each) for each in table.tables("level"))
        table.done()
    except TopologyError as error:
        raise ModelError(f"{source}: {error}") from error
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from error
    return Network(made, levels)


def _real(table: Table, key: str, default: float) -> float:
    value = table.any(key, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= _REAL_MAX:
        raise ModelError(f"{table.title}: `{key}` is {value!r}, not a number from 0 to 1e9")
    return float(value)


def _level(table: Table) -> NetworkLevel:
    medium = table.text("medium")
    length_m = _real(table, "length_m", 0.0)
    stacked = bool(table.get("stacked", bool, False))
    level = NetworkLevel(
        table.text("name", required=True),
        table.number("groups", 1, GROUPS_MAX, required=True),
        load(table.text("profile", required=True)),
        table.number("switches", 0, 64, 1),
        Cable(load(medium) if medium else None, length_m),
        _real(table, "taper", 1.0),
        table.number("planes", 1, 64, 1),
        _real(table, "nics", 1.0),
        stacked,
        bool(table.get("mesh", bool, False)),
        bool(table.get("rails", bool, False)),
    )
    table.done()
    return level
