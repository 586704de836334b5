# SPDX-License-Identifier: BSD-3-Clause
"""Chakra traces that MLCommons' tools wrote, and what they read in one of ours.

tests/data/model/chakra/README.md says where each file is from.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nupa.model.engine.replay import network_for, replay
from nupa.model.errors import ModelError
from nupa.model.formats import chakra
from nupa.model.formats.chakra import node as schema
from nupa.model.formats.chakra.node import TraceNode, metadata_of, nodes
from nupa.model.formats.wire import put_bytes, put_number
from nupa.model.work.expand import expand
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule

DATA = Path(__file__).parents[3] / "data" / "model" / "chakra"
ALL_TYPES = "one_metadata_node_all_types.0"
PEERS = ("comm_dst", "comm_src")
LAYERS_US = (32291, 7488, 7488, 14144, 7488, 9984)
LAYERS_BYTES = (37632, 65536, 65536, 147456, 65536, 65536)


def dumped(name: str) -> list[dict[str, Any]]:
    """Returns the messages that chakra_jsonizer read: the metadata, then the nodes."""
    text = (DATA / f"{name}.json").read_text()
    found, offset = [], 0
    while offset < len(text):
        message, offset = json.JSONDecoder().raw_decode(text, offset)
        found.append(message)
    return found


def attributes_of(message: dict[str, Any]) -> dict[str, object]:
    """Returns the values by name: JSON of protobuf has texts for 64 bits, base64 for bytes."""

    def value(kind: str, given: Any) -> object:
        if kind == "bytes":
            return base64.b64decode(given)
        return int(given) if kind.endswith("64") else given

    found: dict[str, object] = {}
    for each in message.get("attr", ()):
        (field,) = set(each) - {"name", "docString"}
        if field.endswith("List"):
            kind = field.removesuffix("List")
            found[each["name"]] = tuple(value(kind, item) for item in each[field]["values"])
        else:
            found[each["name"]] = value(field.removesuffix("Val"), each[field])
    return found


def enumeration(name: str) -> dict[str, int]:
    """Returns the numbers of an enumeration of the official schema."""
    body = re.search(
        rf"^enum {name} {{(.*?)^}}", (DATA / "et_def.proto").read_text(), re.MULTILINE | re.DOTALL
    )
    assert body
    return {key: int(number) for key, number in re.findall(r"(\w+) = (\d+);", body[1])}


def message_fields(name: str) -> dict[str, tuple[str, int]]:
    """Returns type and number of each field of a message of the official schema, by name."""
    text = (DATA / "et_def.proto").read_text()
    body = re.search(rf"^message {name} {{(.*?)^}}", text, re.MULTILINE | re.DOTALL)
    assert body
    found = re.findall(r"^ +((?:repeated )?\w+) (\w+) = (\d+);", body[1], re.MULTILINE)
    return {field: (kind, int(number)) for kind, field, number in found}


def close(one: object, other: object) -> bool:
    """Says whether two values are the same, a float32 to its seven digits."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-7)
    return type(one) is type(other) and one == other


def plain(found: TraceNode) -> dict[str, object]:
    return {
        "id": found.id,
        "name": found.name,
        "type": found.type,
        "deps": found.deps,
        "us": found.duration_us,
    }


def plain_of(message: dict[str, Any]) -> dict[str, object]:
    """Returns the same of a node that chakra_jsonizer read; what is 0 is left out of JSON."""
    return {
        "id": int(message.get("id", 0)),
        "name": message["name"],
        "type": enumeration("NodeType")[message["type"]],
        "deps": [int(each) for key in ("ctrlDeps", "dataDeps") for each in message.get(key, ())],
        "us": int(message.get("durationMicros", 0)),
    }


def test_the_numbers_of_fields_are_those_of_the_official_schema() -> None:
    node = message_fields("Node")
    names = ("id", "name", "type", "ctrl_deps", "data_deps", "start_time_micros", "duration_micros")
    ours = (
        schema._ID,
        schema._NAME,
        schema._TYPE,
        schema._CTRL_DEPS,
        schema._DATA_DEPS,
        schema._START,
        schema._DURATION,
    )
    assert tuple(node[name][1] for name in names) == ours
    assert node["attr"] == ("repeated AttributeProto", schema._ATTR)
    assert message_fields("GlobalMetadata") == {
        "version": ("string", schema._VERSION),
        "attr": ("repeated AttributeProto", schema._METADATA_ATTR),
    }
    attribute = message_fields("AttributeProto")
    assert attribute["name"] == ("string", schema._ATTR_NAME)
    scalars = {number: kind for kind, number in attribute.values() if number > 2 and number % 2}
    lists = {number: kind for kind, number in attribute.values() if number > 2 and not number % 2}
    assert scalars == schema._SCALARS
    assert lists == {number: f"{kind.title()}List" for number, kind in schema._LISTS.items()}
    for kind in schema._LISTS.values():
        assert message_fields(f"{kind.title()}List") == {
            "values": (f"repeated {kind}", schema._VALUES)
        }


def test_node_types_and_collectives_are_those_of_the_official_schema() -> None:
    from nupa.model.formats.chakra.read import _COLLECTIVES

    assert enumeration("NodeType") == {
        "INVALID_NODE": 0,
        "METADATA_NODE": schema.METADATA,
        "MEM_LOAD_NODE": schema.MEM_LOAD,
        "MEM_STORE_NODE": schema.MEM_STORE,
        "COMP_NODE": schema.COMP,
        "COMM_SEND_NODE": schema.SEND,
        "COMM_RECV_NODE": schema.RECV,
        "COMM_COLL_NODE": schema.COLL,
    }
    names = sorted((number, name) for name, number in enumeration("CollectiveCommType").items())
    official = [name.lower().replace("_", "-") for _, name in names]
    assert [each.removesuffix("-block") for each in official] == list(_COLLECTIVES)


def test_an_attribute_of_each_type_is_read_as_mlcommons_reads_it() -> None:
    data = (DATA / f"{ALL_TYPES}.et").read_bytes()
    (found,) = nodes(data, ALL_TYPES)
    metadata, message = dumped(ALL_TYPES)
    assert metadata_of(data, ALL_TYPES).version == metadata["version"] == "1.0.0"
    assert plain(found) == plain_of(message)
    expected = attributes_of(message)
    assert len(expected) == 30
    assert found.attributes.keys() == expected.keys()
    for name, value in expected.items():
        assert close(found.attributes[name], value), (name, found.attributes[name], value)


def test_nodes_and_dependencies_of_a_training_step_are_as_mlcommons_reads_them() -> None:
    data = (DATA / "mlp.0.et").read_bytes()
    found = list(nodes(data, "mlp.0.et"))
    metadata, *messages = dumped("mlp.0")
    assert metadata_of(data, "mlp.0.et").attributes == attributes_of(metadata)
    assert Counter(each.type for each in found) == {schema.COMP: 18, schema.COLL: 17}
    assert [plain(each) for each in found] == [plain_of(each) for each in messages]
    assert [each.attributes for each in found] == [attributes_of(each) for each in messages]


def alone_ns(collective: str, size_bytes: int) -> float:
    """Returns how long a collective of four ranks takes by itself."""
    steps: list[RankOperation] = []
    expand(steps, collective, range(4), size_bytes, [()] * 4)
    schedule = Schedule("alone", 4, steps)
    return replay(schedule, network_for(schedule, "ib-hdr")).answer.time_ns


def test_a_training_step_is_predicted_as_its_workload_says() -> None:
    schedule = chakra.read(str(DATA / "mlp.0.et"))
    assert (schedule.ranks, schedule.notes) == (4, ())
    gathered = 12 * sum(LAYERS_BYTES) // 4  # of each layer, forward: 3 rounds of 4 ranks
    # The gradients of all layers' weights, and of all inputs but the first layer's: 6 rounds of 4.
    reduced = 24 * (2 * sum(LAYERS_BYTES) - LAYERS_BYTES[0]) // 4
    assert (schedule.messages, schedule.bytes) == (6 * 12 + 11 * 24, gathered + reduced)
    answer = replay(schedule, network_for(schedule, "ib-hdr"))
    work_ns = 3000 * sum(LAYERS_US)
    assert {rank.computation_ns for rank in answer.ranks} == {work_ns}
    # Nothing hides the gathers and the last reduction; computation hides the other ten.
    alone = [("all-gather", size) for size in LAYERS_BYTES] + [("all-reduce", LAYERS_BYTES[0])]
    shown_ns = sum(alone_ns(name, size) for name, size in alone)
    assert answer.answer.time_ns == pytest.approx(work_ns + shown_ns, abs=0.02 * shown_ns)


def test_a_training_step_is_the_same_after_it_is_written(tmp_path: Path) -> None:
    schedule = chakra.read(str(DATA / "mlp"))
    for rank, data in enumerate(chakra.write(schedule)):
        (tmp_path / f"mlp.{rank}.et").write_bytes(data)
    again = chakra.read(str(tmp_path / "mlp"))
    assert (again.messages, again.bytes) == (schedule.messages, schedule.bytes)
    network = network_for(schedule, "ib-hdr")
    assert replay(again, network).ranks == replay(schedule, network).ranks


def ours() -> Schedule:
    steps = [
        RankOperation(0, 0, 0, "compute", (), 2_500),
        RankOperation(0, 1, 8192, "send", (0,)),
        RankOperation(1, 1, 0, "receive", (1,)),
        RankOperation(1, 0, 1 << 33, "send", (2,)),
        RankOperation(0, 0, 0, "receive", (3,)),
        RankOperation(0, 1, 1, "write", (4,), 0, 2),
    ]
    return Schedule("ours", 2, steps)


def test_mlcommons_reads_what_we_write() -> None:
    data = chakra.write(ours())[0]
    assert data == (DATA / "ours.0.et").read_bytes(), "tests/data/model/chakra/make.py"
    metadata, *messages = dumped("ours.0")
    assert metadata == {"version": "0.0.4"}
    found = list(nodes(data, "ours.0.et"))
    assert [plain(each) for each in found] == [plain_of(each) for each in messages]
    assert [each.attributes for each in found] == [attributes_of(each) for each in messages]
    assert [each["type"] for each in messages] == [
        "COMP_NODE",
        "COMM_SEND_NODE",
        "COMM_RECV_NODE",
        "COMM_SEND_NODE",
    ]
    assert attributes_of(messages[2])["comm_size"] == 1 << 33


def fields_of(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for each in message.get("attr", ()):
        (field,) = set(each) - {"name"}
        yield each["name"], field


def test_attributes_that_we_write_have_the_types_that_mlcommons_feeder_takes() -> None:
    taken = {
        "is_cpu_op": "boolVal",
        "comm_size": "int64Val",
        "comm_src": "int32Val",
        "comm_dst": "int32Val",
        "comm_tag": "int32Val",
    }
    found = {name: field for each in dumped("ours.0") for name, field in fields_of(each)}
    assert {name: found[name] for name in taken} == taken


# --- refused ---------------------------------------------------------------------------


def trace(folder: Path, *attributes: bytes, kind: int = schema.COLL, first: bytes = b"") -> str:
    node = put_number(1, 5) + put_bytes(2, b"n") + put_number(3, kind)
    node += b"".join(put_bytes(10, each) for each in attributes)
    messages = schema.framed(node)
    (folder / "x.0.et").write_bytes((first or schema.metadata()) + messages)
    return str(folder / "x")


def attribute(name: str, value: bytes) -> bytes:
    return put_bytes(1, name.encode()) + value


def test_a_trace_without_metadata_loses_no_node(tmp_path: Path) -> None:
    first = schema.framed(put_bytes(2, b"") + put_number(3, schema.COMP))
    with pytest.raises(ModelError, match="offset 0: a node is first"):
        chakra.read(trace(tmp_path, first=first))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (put_bytes(29, b"1024"), "node 5: comm_size is '1024': a number is needed"),
        (put_bytes(14, put_bytes(1, b"\x08")), r"comm_size is \(8,\): a number is needed"),
        (b"", "comm_size is None: a number is needed"),
        (put_bytes(9, b"\x08"), "field 9 has type 2: type 0 is needed"),
        (put_bytes(22, put_bytes(1, bytes(7))), "field 1: a number of its list is cut off"),
    ],
)
def test_a_size_that_is_no_number_is_refused(value: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        chakra.read(trace(tmp_path, attribute("comm_size", value)))


def test_a_collective_of_some_dimensions_is_refused(tmp_path: Path) -> None:
    common = (attribute("comm_type", put_number(9, 0)), attribute("comm_size", put_number(9, 64)))
    some = attribute("involved_dim", put_bytes(28, put_bytes(1, b"\x01\x00")))
    with pytest.raises(ModelError, match=r"involved_dim \[True, False\]: which ranks"):
        chakra.read(trace(tmp_path, *common, some))
    every = attribute("involved_dim", put_bytes(28, put_bytes(1, b"\x01\x01")))
    assert chakra.read(trace(tmp_path, *common, every)).ranks == 1
    named = attribute("pg_name", put_bytes(29, b"0"))
    assert chakra.read(trace(tmp_path, *common, some, named)).ranks == 1


def test_computations_without_a_duration_are_noted(tmp_path: Path) -> None:
    ops = attribute("num_ops", put_number(9, 10**12))
    found = chakra.read(trace(tmp_path, ops, kind=schema.COMP))
    assert found.notes == (
        "1 computations, of which num_ops is known, have no duration, and take no time",
    )


@pytest.mark.parametrize("is_cpu_op", [True, False])
def test_messages_pass_while_others_programs_compute(is_cpu_op: bool, tmp_path: Path) -> None:
    """A send of one node and a computation of another, neither of which waits for the other."""
    op = attribute("is_cpu_op", put_number(27, is_cpu_op))
    work = put_number(1, 1) + put_number(3, schema.COMP) + put_number(7, 100) + put_bytes(10, op)
    peers = [attribute(name, put_number(7, 1 - rank)) for rank, name in enumerate(PEERS)]
    for rank, kind in enumerate((schema.SEND, schema.RECV)):
        size = attribute("comm_size", put_number(9, 1 << 20))
        message = put_number(1, 2) + put_number(3, kind)
        message += put_bytes(10, size) + put_bytes(10, peers[rank])
        data = schema.metadata() + schema.framed(work) + schema.framed(message)
        (tmp_path / f"x.{rank}.et").write_bytes(data)
    schedule = chakra.read(str(tmp_path / "x"))
    alone = RankOperation(0, 1, 1 << 20, "send")
    network = network_for(schedule, "ib-hdr")
    message_ns = replay(Schedule("m", 2, [alone]), network).answer.time_ns
    assert 40_000 < message_ns < 100_000
    assert replay(schedule, network).answer.time_ns == pytest.approx(100_000)
