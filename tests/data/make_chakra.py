# SPDX-License-Identifier: BSD-3-Clause
"""Makes tests/data/chakra.0.et and chakra.1.et with Google's protobuf: `pip install protobuf`.

They judge nupa.model.formats.chakra, which has its own reader of the wire format.  Field numbers
are those of et_def.proto, version 0.0.4 (github.com/mlcommons/chakra).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.encoder import _VarintBytes

_TYPES = {"string": 9, "uint64": 4, "int64": 3, "bool": 8, "enum": 14, "message": 11, "double": 1}
_MESSAGES = {
    "AttributeProto": [
        ("name", 1, "string", ""),
        ("double_val", 3, "double", ""),
        ("int64_val", 9, "int64", ""),
        ("uint64_val", 13, "uint64", ""),
        ("bool_val", 27, "bool", ""),
        ("string_val", 29, "string", ""),
    ],
    "GlobalMetadata": [("version", 1, "string", ""), ("attr", 2, "message", "AttributeProto")],
    "Node": [
        ("id", 1, "uint64", ""),
        ("name", 2, "string", ""),
        ("type", 3, "uint64", ""),
        ("ctrl_deps", 4, "uint64", "repeated"),
        ("data_deps", 5, "uint64", "repeated"),
        ("start_time_micros", 6, "uint64", ""),
        ("duration_micros", 7, "uint64", ""),
        ("attr", 10, "message", "AttributeProto"),
    ],
}
COMP, SEND, RECV, COLL = 4, 5, 6, 7
ALL_REDUCE = 0


def messages() -> dict[str, Any]:
    """Returns the classes of the three messages."""
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="c", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, number, kind, of in fields:
            added = message.field.add(name=field, number=number, type=_TYPES[kind])
            added.label = 3 if of else 1
            if name == "AttributeProto" and field.endswith("_val"):
                added.oneof_index = 0
            if kind == "message":
                added.type_name = f".c.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"c.{name}"))
        for name in _MESSAGES
    }


def main() -> None:
    known = messages()

    def node(number: int, name: str, kind: int, deps: list[int], us: int, **attr: Any) -> Any:
        made = known["Node"](id=number, name=name, type=kind, data_deps=deps, duration_micros=us)
        for key, value in attr.items():
            kinds = {bool: "bool_val", int: "int64_val", str: "string_val"}
            made.attr.append(known["AttributeProto"](name=key, **{kinds[type(value)]: value}))
        return made

    for rank in range(2):
        mine = [
            node(7, "forward", COMP, [], 40, is_cpu_op=False),
            node(8, "activations", SEND if rank == 0 else RECV, [7], 0, comm_size=65536,
                 comm_src=0, comm_dst=1, comm_tag=3),
            node(9, "gradients", COLL, [8], 0, comm_type=ALL_REDUCE, comm_size=1 << 20),
            node(300, "optimizer", COMP, [], 5 + rank, is_cpu_op=False),
        ]  # fmt: skip
        mine[3].ctrl_deps.append(9)
        data = b""
        for message in (known["GlobalMetadata"](version="0.0.4"), *mine):
            packed = message.SerializeToString()
            data += _VarintBytes(len(packed)) + packed
        Path(__file__).with_name(f"chakra.{rank}.et").write_bytes(data)


if __name__ == "__main__":
    main()
