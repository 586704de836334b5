# SPDX-License-Identifier: BSD-3-Clause
"""Files that claim more than any machine holds, or that never end: one error each, soon."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest

from nupa.cli import main
from nupa.model.engine.replay import network_for, replay
from nupa.model.errors import ModelError
from nupa.model.formats import capture, goal
from nupa.model.formats.chakra import read as read_chakra
from nupa.model.formats.wire import put_bytes, put_double, put_number, put_varint
from nupa.model.network.text import parse

_NAMES = "abcdefghijk"
#: Each name stands for nine of the one before: 9^11 in all.
ALIASES = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in pairwise(_NAMES)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join(['*' + before] * 9)}]}}\n"
    for before, name in pairwise(_NAMES)
)
DIMENSION = "topology: [{}]\nnpus_count: [{}]\nbandwidth: [1]\nlatency: [1]\n"
GPU = '<gpu sm="90" dev="0"/>'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.yml", ALIASES + "topology: [*k]\n", ":2: an alias"),
        ("x.yml", MERGES, ":2: an alias"),
        ("x.yml", "[" * 200_000, "x.yml:1: more than 8 lists or keys deep"),
        ("x.yml", "[" * 8 + "]" * 8, "the file holds no keys"),
        ("x.yml", "[" * 8, "not YAML"),
        ("x.yml", DIMENSION.format("Switch", 1 << 40), "at most 262144"),
        ("x.yml", DIMENSION.format("FullyConnected", 1 << 17), "links of FullyConnected: at most"),
        ("x.txt", "16777216 0 16777215\n", "the file has fewer lines"),
        ("x.txt", "16777216 0 8\n", "8 links do not join 16777216 nodes"),
        ("x.txt", f"{1 << 60} 1 1\n", "2 to 16777216 is possible"),
        ("x.topo", f"Nodes {1 << 60}\nTiers 2\n", "1 to 16777216 is possible"),
        ("x.xml", '<!DOCTYPE x [<!ENTITY a "b">]><system>&a;</system>', "a document type"),
        ("x.xml", f"<system>{'<cpu/>' * 2000}{GPU}</system>", "2000 elements <cpu>: 1024"),
        ("x.xml", "<system>" + "<pci>" * 100, "more than 64 elements deep"),
        (
            "x.toml",
            '[[level]]\nname="a"\ngroups=8\nprofile="ib-ndr"\ntaper=nan\n',
            "`taper` is nan",
        ),
        ("x.toml", f'[[level]]\nname="a"\ngroups={1 << 60}\nprofile="ib-ndr"\n', "groups"),
    ],
)
def test_a_network_that_claims_too_much_is_refused(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ModelError) as found:
        parse(str(file))
    assert message in str(found.value)


@pytest.mark.parametrize("suffix", [".yml", ".txt", ".topo", ".xml", ".toml"])
def test_a_device_is_read_up_to_the_limit(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"x{suffix}"
    file.symlink_to("/dev/zero")
    with pytest.raises(ModelError, match=r"bytes"):
        parse(str(file))


@pytest.mark.parametrize("name", ["x.goal", "x.0.et", "x.pcap", "x.nrec"])
def test_a_device_is_no_trace(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.symlink_to("/dev/zero")
    assert main(["model", "replay", str(file), "--on", "ib-ndr"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["num_ranks {}\n", "num_ranks 1\nrank 0 {{\na: calc {}\n}}\n"], ids=["ranks", "calc"]
)
def test_a_number_of_5000_digits_is_too_large(text: str) -> None:
    with pytest.raises(ModelError, match="9999 is too large: less than"):
        goal.read(text.format("9" * 5000), "x")


def test_receives_from_anyone_among_a_million_ranks_are_found_at_once() -> None:
    ends = range(2000)
    receives = "\n".join(f"a{end}: recv 8b from -1 tag -1" for end in ends)
    sends = "\n".join(f"a{end}: send 8b to 0 tag {end}" for end in ends)
    text = f"num_ranks 1000000\nrank 0 {{\n{receives}\n}}\nrank 999999 {{\n{sends}\n}}\n"
    steps = goal.read(text, "x").steps
    assert [step.after for step in steps[:2000]] == [(2000 + end,) for end in ends]


def test_sends_of_one_thread_that_are_received_backwards_take_no_square_of_their_number() -> None:
    count = 20_000
    receives = "\n".join(f"a{end}: recv 8b from 1 tag {count - end}" for end in range(count))
    sends = "\n".join(f"a{end}: send 8b to 0 tag {end + 1}" for end in range(count))
    text = f"num_ranks 2\nrank 0 {{\n{receives}\n}}\nrank 1 {{\n{sends}\n}}\n"
    schedule = goal.read(text, "x")
    assert schedule.steps[0].after == (2 * count - 1,)
    assert replay(schedule, network_for(schedule, "ib-ndr")).answer.time_ns > count * 100


def test_a_chain_of_starts_is_read_once() -> None:
    count = 20_000
    calcs = "\n".join(f"a{each}: calc 1" for each in range(count))
    chain = "\n".join(f"a{each} irequires a{each - 1}" for each in range(1, count))
    schedule = goal.read(f"num_ranks 1\nrank 0 {{\n{calcs}\n{chain}\n}}\n", "x")
    assert not any(step.after for step in schedule.steps)


def node(*fields: bytes) -> bytes:
    message = b"".join(fields)
    return put_varint(len(message)) + message


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (put_double(3, float("nan")), "field 3 is nan: a finite number is needed"),
        (put_double(3, float("inf")), "field 3 is inf"),
        (put_number(5, 1 << 40), "field 5 has type 0"),
        (put_number(9, (1 << 64) - 5), "takes -5 ns"),
    ],
)
def test_a_duration_that_is_no_time_is_refused(
    attribute: bytes, message: str, tmp_path: Path
) -> None:
    duration = put_bytes(10, put_bytes(1, b"duration_ns") + attribute)
    head = node(put_bytes(1, b"0.0.4"))
    (tmp_path / "x.0.et").write_bytes(head + node(put_number(1, 1), put_number(3, 4), duration))
    with pytest.raises(ModelError) as found:
        read_chakra(str(tmp_path / "x.0.et"))
    assert message in str(found.value)


def test_a_capture_whose_block_never_ends_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    file.write_bytes(struct.pack("<IIII", 0x0A0D0D0A, 0xFFFFFFF0, 0x1A2B3C4D, 1))
    with pytest.raises(ModelError) as found:
        capture.read(str(file))
    assert str(found.value).count(str(file)) == 1
