# SPDX-License-Identifier: BSD-3-Clause
"""Words of a command line as values: numbers, opcodes, bytes, UUIDs."""

from __future__ import annotations

import argparse
from uuid import UUID


def byte(text: str) -> int:
    """Returns the number of a port, vPPB, virtual switch or LD."""
    if not text.isdecimal() or int(text) > 254:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number from 0 to 254")
    return int(text)


def opcode(text: str) -> int:
    """Returns an opcode, which is written in hexadecimal digits."""
    try:
        value = int(text, 16)
    except ValueError:
        value = -1
    if not 0 <= value <= 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text!r}: write an opcode, like 5100")
    return value


def data(text: str) -> bytes:
    """Returns bytes, which are written in hexadecimal digits."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: write hexadecimal bytes") from error


def setting(text: str) -> tuple[str, int]:
    """Returns the name and the value of "name=value"."""
    name, equals, value = text.partition("=")
    if not equals or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: write a setting, like severe_percent=40")
    return name, int(value)


def uuid(text: str) -> UUID:
    """Returns a UUID."""
    try:
        return UUID(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: write 32 hexadecimal digits") from error
