# SPDX-License-Identifier: BSD-3-Clause
"""Random command lines, made from the parsers themselves: right, nearly right, and wrong ones."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from random import Random

from nupa.cli import build_parser

#: Commands that run for long, start other processes, or download.  Their lines are parsed only.
PARSED_ONLY = (
    *("capture", "demo", "dissector", "doctor", "fabric transactions", "fm serve", "man", "perf"),
    *("model calibrate", "model sweep", "model validate", "net up", "serve", "top", "vm demo"),
    "vm storage",
    *("vm start", "vm up"),
)
# Options, and their abbreviations, that never end or make network namespaces.
_NOT_RUN = ("--fo", "--real", "--ne", "--wa")
#: The only programs that a line runs.  No line has a slash elsewhere, so that no file is written
#: but in the folder of the test.
PROGRAMS = ("true", "false", "", "no-such-program", "/", "/dev/null", "./x")
_FABRICS = ("default", "lab", "served", "gone", "", ".", "a" * 33, "µ")
_HOSTS = ("host0", "0", "host1", "host9", "-1", "host0,host1", "all", "")
PORTS = ("host0/1", "switch0/2", "host0-switch0", "ls", "clear", "add", "drop", "delay", "flap")
# None between 16 MiB, which a pool has, and 2^40, which none has: memory is allocated at once.
_NUMBERS = (
    *("0", "1", "2", "3", "-1", "255", "256", "65535", "0x10", "1.5", "1e3", "²", "٣", "0b1"),
    *("4294967295", "4294967296", "18446744073709551616", "9" * 40, "1e400", "inf", "nan", "-0"),
)
_SIZES = ("64K", "1M", "0K", "-1M", "1X", "none", "99999999T", "1.0001K", "K", "1e3M", "1e999K")
_TIMES = ("1ms", "2s", "0s", "1min", "5", "-3s", "1h", "1e99s", "s")
_WORDS = (
    *("", " ", "-", "x", "=", "x=1", "severe_percent=40", "1%", "101%", "10MB/s", "any", "drop"),
    *("5100", "00", "zz", "0f3a0000-0000-0000-0000-000000000001", "\udcff", "\n"),
    *("write:8", "allreduce:1M", "ib-hdr", "roce-400", "cxl-gen6x4", "rack24", "pair", "hdm"),
    *("transport", "queue", "dqpn == 1", "((", "missing.pcapng", "x.pcap", "x.toml", "%s", "{}"),
)
#: Of arguments by the function that parses them: mostly right values.
_OF_TYPE = {
    "byte": ("0", "1", "2", "3", "4", "254"),
    "int": ("0", "1", "2", "16", "300"),
    "count": ("1", "2", "3", "64", "5000"),
    "whole": ("0", "1", "0x10", "7"),
    "data": ("00", "01", "00000000"),
    "opcode": ("5100", "5101", "5200", "5400", "0400", "c000"),
    "setting": ("severe_percent=40", "moderate_percent=0", "x=1"),
    "uuid": ("0f3a0000-0000-0000-0000-000000000001",),
    "rate": ("10MB/s", "10Gb/s", "none", "0B/s", "fast"),
    "_pkey": ("0x12", "1", "0x7ffe", "0x7fff", "0"),
    "_level": ("0", "15", "16"),
}
_OF = {
    "fabric": _FABRICS,
    "named": _FABRICS,
    "file": ("x.pcap", "x.toml", "missing", ""),
    "read": ("x.pcap", "x.toml", "missing", "-"),
    "topology": ("x.toml", "pair", "rack24", "rack25"),
    "on": ("ib-hdr", "roce-400", "rack24", "x"),
    "work": ("write:8", "allreduce:1M", "barrier", "write:", "x:1"),
    "host": _HOSTS,
    "share": _HOSTS,
    "hosts": _HOSTS,
    "members": (*_HOSTS, "accelerator:7", "accelerator:1024", "device:d", "device:", "tag:0", "x:"),
    "tenant": ("red", "red", "blue", "a/b", "a" * 32),
    "partition": ("p", "p", "q", "0x0001", "0x7fff", "default", "0xzz", "a" * 32),
    "identity": ("vendor=acme", "serial=1", "width=8", "a b=c", "x.toml", "missing"),
    "policy": ("x.toml", "missing", "x.pcap"),
    "port": (*PORTS, *_NUMBERS),
    "words": (*PORTS, *_HOSTS, *_NUMBERS),
    "size": (*_SIZES, *_NUMBERS),
    "pool": (*_SIZES, "16M", "4G"),
}


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields the parser of each command."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for each in action.choices.values():
            yield from leaves(each)


class Lines:
    """Makes command lines from *random*."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._leaves = list(leaves(build_parser([])))
        options = {option for leaf in self._leaves for option in leaf._option_string_actions}
        self._options = sorted(options - {"--follow", "--keep"})

    def next(self) -> list[str]:
        """Returns the words behind `nupa`."""
        if self._random.random() < 0.15:
            return self._noise()
        line = self._command(self._random.choice(self._leaves))
        for _ in range(self._random.choice([0, 0, 0, 1, 1, 2, 4])):
            self._damage(line)
        return line

    def _noise(self) -> list[str]:
        names = [word for leaf in self._leaves for word in leaf.prog.split()[1:]]
        pool = (*names, *self._options, *_WORDS, *_NUMBERS, *_FABRICS, "--")
        return [self._random.choice(pool) for _ in range(self._random.randrange(6))]

    def _command(self, parser: argparse.ArgumentParser) -> list[str]:
        random, line = self._random, parser.prog.split()[1:]
        for action in parser._actions:
            wanted = action.required or random.random() < 0.25
            if action.dest == "help" or not wanted:
                continue
            if action.option_strings:
                line.append(random.choice(action.option_strings))
            line += self._values(action)
        if parser.prog.startswith("nupa fm ") and random.random() < 0.7:
            line += ["--fabric", "served"]
        if getattr(parser, "words_before_program", None) is not None:
            line += ["--", random.choice(PROGRAMS)]
        return line

    def _values(self, action: argparse.Action) -> list[str]:
        random = self._random
        if action.nargs == 0:
            return []
        many = random.randrange(4) if action.nargs in ("*", "+") else 1
        pool: Sequence[str] = (*_NUMBERS, *_SIZES, *_TIMES, *_WORDS)
        if action.choices and random.random() < 0.9:
            pool = list(map(str, action.choices))
        elif random.random() < 0.9:
            pool = _OF_TYPE.get(getattr(action.type, "__name__", ""), _OF.get(action.dest, pool))
        return [random.choice(pool) for _ in range(many)]

    def _damage(self, line: list[str]) -> None:
        """Adds, removes, doubles, swaps or changes a word before the program."""
        random = self._random
        end = line.index("--") if "--" in line else len(line)
        at = random.randrange(end + 1)
        match random.randrange(5):
            case 0:
                line.insert(at, random.choice((*self._options, *_WORDS, *_NUMBERS)))
            case 1 if at < end:
                del line[at]
            case 2 if at < end:
                line.insert(at, line[at])
            case 3 if at + 1 < end:
                line[at], line[at + 1] = line[at + 1], line[at]
            case 4 if at < end and line[at]:
                word = line[at]
                cut = random.randrange(len(word))
                line[at] = word[:cut] + random.choice("-=x0 \t") + word[cut + 1 :]


def is_run(line: Sequence[str]) -> bool:
    """Tells whether a line is run, and not only parsed."""
    words = f" {' '.join(line)} "
    if any(word.startswith(_NOT_RUN) for word in line):
        return False
    read = "-r" in line or "--fields" in line
    return read or not any(f" {name} " in words for name in PARSED_ONLY)
