# SPDX-License-Identifier: BSD-3-Clause
"""Topologies from TOML: the presets, and messages that name the place of an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nupa.topology import file as topology_file
from nupa.topology import tenants_file
from nupa.topology.file import load, parse, presets
from nupa.topology.tenants import MEMBER_KINDS, QuotasConfig
from nupa.topology.toml_table import FILE_BYTES_MAX
from nupa.topology.topology import (
    HostConfig,
    LinkConfig,
    MemoryConfig,
    SegmentConfig,
    SwitchConfig,
    Topology,
    TopologyError,
    TrunkConfig,
)
from nupa.topology.topology import star as make_star

PAGE = Path(__file__).parents[3] / "docs" / "topology.md"


def parts(topology: Topology) -> tuple[object, ...]:
    return topology.switches, topology.hosts, topology.trunks, topology.link_layer


def test_there_are_five_presets() -> None:
    assert presets() == ["gpu24", "pair", "rack24", "storage16", "tenants"]


@pytest.mark.parametrize(
    ("name", "hosts", "switches", "longest"),
    [
        ("pair", 2, 1, 4),
        ("rack24", 24, 1, 4),
        ("storage16", 16, 2, 6),
        ("gpu24", 24, 4, 8),
        ("tenants", 6, 1, 4),
    ],
)
def test_presets_are_what_their_names_say(
    name: str, hosts: int, switches: int, longest: int
) -> None:
    topology = load(name)
    assert topology.name == name
    assert (len(topology.hosts), len(topology.switches)) == (hosts, switches)
    assert max(len(path) for row in topology.routes for path in row) == longest
    assert {host.link for host in topology.hosts} == {LinkConfig(4, 32000)}


def test_the_fabric_of_nupa_run_is_the_preset_pair() -> None:
    assert parts(load("pair")) == parts(make_star(2))


def test_every_key_is_understood() -> None:
    text = b"""
    name = "lab"
    link_layer = "infiniband"
    [link]
    width = 8
    speed = "gen6"
    [segment]
    slots = 8
    pool_bytes = 1048576
    [[switch]]
    name = "s"
    ports = 9
    [[switch]]
    name = "t"
    ports = 9
    [[host]]
    name = "a"
    switch = "s"
    port = 7
    width = 1
    speed = 2500
    [[host]]
    name = "b"
    count = 2
    first = 5
    port = 2
    switch = "t"
    [[trunk]]
    between = ["s", "t"]
    ports = [9, 8]
    width = 16
    [[memory]]
    bytes = 268435456
    count = 2
    [[memory]]
    bytes = 536870912
    logical = true
    dynamic_bytes = 1073741824
    """
    topology = parse(text, "lab.toml", "file")
    link = LinkConfig(8, 64000)
    assert topology.name == "lab"
    assert topology.segment == SegmentConfig(slots=8, pool_bytes=1048576)
    single = MemoryConfig(256 << 20)
    assert topology.memory == (single, single, MemoryConfig(512 << 20, True, 1 << 30))
    assert parts(topology) == (
        (SwitchConfig("s", 9), SwitchConfig("t", 9)),
        (
            HostConfig("a", "s", 7, LinkConfig(1, 2500)),
            HostConfig("b5", "t", 2, link),
            HostConfig("b6", "t", 3, link),
        ),
        (TrunkConfig(("s", "t"), (9, 8), LinkConfig(16, 64000)),),
        "infiniband",
    )


SWITCH = b'[[switch]]\nname = "s"\nports = 2\n'
HOST = b'[[host]]\nname = "h"\nswitch = "s"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[link]\nwidth = \n", r"f\.toml:2: Invalid value \(column 9\)"),
        (SWITCH + b"ports = 3\n", r"f\.toml:4: Cannot overwrite a value"),
        (b'name = "x', r"f\.toml:1: "),
        (b"a = 1\nb = '\xff'\n", r"f\.toml:2: not UTF-8"),
        (b"", "there are 0 hosts"),
        (SWITCH + HOST + b"swich = 1\n", r"\[\[host\]\] 1 \('h'\): there is no key `swich`"),
        (SWITCH + HOST + b"[lnk]\n", "the file: there is no key `lnk`; the keys are: name, link"),
        (SWITCH + b'[[host]]\nname = "h"\n', r"\[\[host\]\] 1 \('h'\): the key `switch` is miss"),
        (b'[[switch]]\nname = "s"\n' + HOST, r"\[\[switch\]\] 1 \('s'\): the key `ports` is miss"),
        (b"[[switch]]\nname = 7\nports = 2\n", r"\[\[switch\]\] 1: `name` is 7, not a string"),
        (b'[[switch]]\nname = "s"\nports = 0\n', "`ports` is 0: choose 1 to 1024"),
        (b'[[switch]]\nname = "s"\nports = 1025\n', "`ports` is 1025: choose 1 to 1024"),
        (b'[[switch]]\nname = "s"\nports = true\n', "`ports` is True, not a whole number"),
        (SWITCH + HOST + b"count = 255\n", "`count` is 255: choose 1 to 254"),
        (SWITCH + HOST + b"width = 3\n", r"'h'\): `width` is 3 lanes: choose one of 1, 2, 4, 8, 1"),
        (SWITCH + HOST + b'speed = "Gen9"\n', "`speed` is 'Gen9': choose one of Gen3, Gen4, Gen5"),
        (SWITCH + HOST + b"speed = 0\n", "`speed` is 0: choose"),
        (b"[link]\nwidth = true\n", r"\[link\]: `width` is True, not a whole number"),
        (b"link = 4\n", "the file: `link` is 4, not a table"),
        (b"host = 4\n", "the file: `host` is 4, not an array"),
        (b'host = ["h"]\n', r"`host` holds 'h': write tables, \[\[host\]\]"),
        (
            b"[segment]\nslotz = 4\n",
            r"\[segment\]: there is no key `slotz`; the keys are: coherence,",
        ),
        (b"[segment]\nslots = -1\n", r"\[segment\]: `slots` is -1: choose 1 to"),
        (SWITCH + HOST + b'[[trunk]]\nbetween = ["s"]\n', r"\[\[trunk\]\] 1: `between` is"),
        (
            SWITCH + HOST + b'[[trunk]]\nbetween = ["s", "s"]\nports = [1, -1]\n',
            r"\[\[trunk\]\] 1: `ports` is \[1, -1\]: give two port numbers",
        ),
        (SWITCH + HOST + b"[[memory]]\nbytes = 1\n", "give a multiple of 256 MiB"),
        (
            SWITCH + HOST + b"[[memory]]\nbytes = 268435456\ndynamic_bytes = 536870912\n",
            "set `logical = true`",
        ),
        (
            SWITCH + HOST + b"[[memory]]\nbytes = 268435456\nlogical = true\ndynamic_bytes = 1\n",
            "give a multiple of 512 MiB",
        ),
        (SWITCH + HOST + b"count = 3\n", r"f\.toml: h2: all 2 ports of s are taken"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(text: bytes, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        parse(text, "f.toml", "f")
    assert str(caught.value).startswith("f.toml:")
    assert "\n" not in str(caught.value)


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TopologyError, match="no preset 'rack': choose one of gpu24, pair, rack24"):
        load("rack")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(TopologyError, match=r"Is a directory"):
        load(tmp_path)


def test_a_file_of_the_largest_size_is_read_and_a_larger_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    text = SWITCH + HOST
    path.write_bytes(text + b"#" * (FILE_BYTES_MAX - len(text)))
    assert load(path).name == "large"
    with path.open("ab") as file:
        file.write(b"#")
    with pytest.raises(TopologyError, match="at most 1048576 bytes"):
        load(path)


def test_the_file_of_the_page_is_read() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    topology = parse(text.encode(), "lab.toml", "lab")
    assert [host.name for host in topology.hosts] == [
        *(f"client{i}" for i in range(4)),
        *("server0", "server1"),
    ]
    assert topology.segment.pool_bytes == 4 << 30


def test_the_page_lists_the_keys_that_are_read() -> None:
    section = PAGE.read_text().split("\n## Keys\n")[1]
    rows = re.findall(r"^\|[^|]*\| (`[^|]+) \|", section, re.MULTILINE)
    listed = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    source = Path(topology_file.__file__).read_text() + Path(tenants_file.__file__).read_text()
    read = set(re.findall(r'table?\.(?:get|any|text|number|table)\("(\w+)"', source))
    read |= set(re.findall(r'(?:rate|_texts)\(table, "(\w+)"', source))
    read |= set(re.findall(r'top\.text\("(\w+)"', source)) | {*SegmentConfig._fields}
    assert listed == read - {"rule"}
    # Keys of tables inside tables.
    inner = {*QuotasConfig._fields, *MEMBER_KINDS}
    inner |= set(re.findall(r'member\.(?:get|text)\("(\w+)"', source))
    assert {key for key in inner if f"`{key}`" not in section} == set()


def test_the_presets_of_the_page_are_those_that_there_are() -> None:
    listed = re.findall(
        r"^\| `(\w+)` (?:\(the default\) )?\| `\w+`", PAGE.read_text(), re.MULTILINE
    )
    assert sorted(listed) == presets()


def test_a_large_pool_gets_extents_that_reach_over_it() -> None:
    assert SegmentConfig().with_pool(1 << 36) == SegmentConfig(pool_bytes=1 << 36)
    assert SegmentConfig().with_pool(1 << 40) == SegmentConfig(
        pool_bytes=1 << 40, extent_bytes=1 << 20
    )
    assert SegmentConfig(extent_bytes=4096).with_pool(1 << 33).extent_bytes == 8192
