# SPDX-License-Identifier: BSD-3-Clause
"""Work as the command line names it: `write:8`, `write-bw:64K`, `allreduce:1G`, `@step.toml`.

A word, its size, and options: `allreduce:1G,algorithm=ring`.  A range of sizes, `write:8..8M`, is a
work for each power of two of its first size.  This file is the only parser of such text.
"""

from __future__ import annotations

import difflib
import importlib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from nupa.base.errors import LocalError
from nupa.base.quantity import byte_count
from nupa.model.bounded import read_bytes
from nupa.model.errors import ModelError
from nupa.model.work import file
from nupa.model.work.collective import Collective
from nupa.model.work.collectives.names import ALIASES, OPERATIONS
from nupa.model.work.perftest import ATOMIC_BYTES, TX_DEPTH, Perftest
from nupa.model.work.phase import Work
from nupa.model.work.storage import Storage

FILE_BYTES_MAX = 1 << 20
BW_MESSAGES = 1000  #: perftest's default number of iterations

Options = Mapping[str, str]
_NONE: Options = {}


class Word(NamedTuple):
    """A kind of work: *make* has the size and the options.

    *sized*: the word has a size; *options* are the names of those that it takes.
    """

    make: Callable[[str, int, Options], Work]
    options: tuple[str, ...] = ()
    sized: bool = True


#: Readers of files by their `kind`: modules with read(table, source) -> Work.
READERS: Mapping[str, str] = dict.fromkeys(file.KINDS, file.__name__)


def parse(text: str, defaults: Options = _NONE) -> Work:
    """Returns the work of that text; *defaults* are options that the text may leave out.

    ModelError: no such work, with the nearest; a wrong size.
    """
    found = expand(text)
    if len(found) > 1:
        raise ModelError(f"{text!r} is {len(found)} sizes: give one, as {found[0]}")
    return _parse(found[0], defaults)


def parse_all(text: str, defaults: Options = _NONE) -> tuple[Work, ...]:
    """Returns the works of that text, one for each size of a range.  ModelError as `parse`."""
    return tuple(_parse(each, defaults) for each in expand(text))


def expand(text: str) -> list[str]:
    """Returns a text for each size of a range.  ModelError: no such work, or a wrong size.

    >>> expand("write-bw:64..200,depth=4")
    ['write-bw:64,depth=4', 'write-bw:128,depth=4']
    """
    name, _, rest = text.strip().partition(":")
    size, comma, options = rest.partition(",")
    if ".." not in size or name.startswith("@"):
        return [text.strip()]
    _find(name)
    return [f"{name}:{each}{comma}{options}" for each in _sizes(text, name, size)]


def _parse(text: str, defaults: Options) -> Work:
    if text.startswith("@"):
        return _file(text[1:], defaults)
    name, colon, rest = text.partition(":")
    size, *options = rest.split(",")
    if not colon:
        name, *options = text.split(",")
    name = name.strip()
    word = _find(name)
    chosen = {name: value for name, value in defaults.items() if name in word.options}
    chosen |= _options(text, word, options)
    if not word.sized:
        if size.strip():
            raise ModelError(f"{text!r}: {name} has no size: write {name}")
        return word.make(name, 0, chosen)
    (found,) = _sizes(text, name, size)
    return word.make(name, found, chosen)


def _find(name: str) -> Word:
    known = words()
    plain = _plain(name)
    if plain not in known:
        near = difflib.get_close_matches(plain, known, 1)
        raise ModelError(
            f"no work {name!r}"
            + (f": is {near[0]!r} meant?" if near else ":")
            + f" There are {', '.join(known)}; @FILE.toml is read"
        )
    return known[plain]


def _plain(name: str) -> str:
    """Returns a name as the table has it: perftest's and nccl-tests' programs are names, too.

    >>> _plain("ib_write_bw"), _plain("all_reduce_perf"), _plain("AllReduce")
    ('write-bw', 'all-reduce', 'all-reduce')
    """
    plain = name.strip().lower().replace("_", "-").removeprefix("ib-").removesuffix("-perf")
    plain = plain.removesuffix("-lat")
    return ALIASES.get(plain.replace("-", ""), plain)


def _sizes(text: str, name: str, size: str) -> Iterator[int]:
    first, dots, last = (part.strip() for part in size.partition(".."))
    if not first:
        raise ModelError(f"{text!r} has no size: write {name}:64K, or {name}:8..8M")
    try:
        least, most = byte_count(first), byte_count(last if dots else first)
    except LocalError as error:
        raise ModelError(f"{text!r}: {error}") from error
    if not 1 <= least <= most:
        raise ModelError(f"{text!r}: sizes are 1 B or more, and ranges rise")
    while least <= most:
        yield least
        least *= 2


def _options(text: str, word: Word, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        key, sign, value = (part.strip() for part in each.partition("="))
        if not sign or key not in word.options:
            takes = ", ".join(f"{option}=…" for option in word.options) or "no options"
            raise ModelError(
                f"{text!r}: {each.strip()!r} is no option of this work: it takes {takes}"
            )
        found[key] = value
    return found


def yes(options: Options, name: str) -> bool:
    """Returns an option, false where it is left out.  ModelError: it is not true or false."""
    value = options.get(name, "false")
    if value not in ("true", "false"):
        raise ModelError(f"{name}={value}: give true or false")
    return value == "true"


def number(options: Options, name: str, default: int) -> int:
    """Returns an option that is a number from 1 up.  ModelError: it is none."""
    value = options.get(name, str(default))
    if not value.isdecimal() or not int(value):
        raise ModelError(f"{name}={value}: give a number from 1 up")
    return int(value)


# --- the words -----------------------------------------------------------------------------


def _latency(name: str, size_bytes: int, _options: Options) -> Work:
    return Perftest(_verb(name, size_bytes), size_bytes)


def _verb(name: str, size_bytes: int) -> str:
    """Returns the operation of a word.  ModelError: it has no such size."""
    verb = _plain(name).removesuffix("-bw")
    if verb == "atomic" and size_bytes != ATOMIC_BYTES:
        raise ModelError(f"'{name}:{size_bytes}': an atomic has 8 bytes: write {name}:8")
    return verb


def _bandwidth(name: str, size_bytes: int, options: Options) -> Work:
    return Perftest(
        _verb(name, size_bytes),
        size_bytes,
        in_flight=number(options, "depth", TX_DEPTH),
        messages=number(options, "messages", BW_MESSAGES),
        qps=number(options, "qps", 1),
        bidirectional=yes(options, "bidirectional"),
    )


def _collective(name: str, size_bytes: int, options: Options) -> Work:
    return Collective(
        _plain(name),
        size_bytes,
        algorithm=options.get("algorithm", ""),
        protocol=options.get("protocol", ""),
        library=options.get("library", "nccl"),
        gpus_per_process=number(options, "gpus_per_process", 1),
        channels=number(options, "channels", 1) if "channels" in options else 0,
    )


def _storage(_name: str, size_bytes: int, options: Options) -> Work:
    values = {key: _value(value) for key, value in options.items()}
    return file.read({"kind": "storage", "bs": size_bytes, **values}, "storage")


def _value(text: str) -> int | bool | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text


_VERBS = ("write", "read", "send", "atomic", "load", "store")
_POSTED = ("write", "read", "send")
_STREAM = ("depth", "messages", "qps", "bidirectional")
_CHOICES = ("algorithm", "protocol", "library", "gpus_per_process", "channels")
_STORAGE = tuple(each.name for each in fields(Storage) if each.name != "bs")


def words() -> dict[str, Word]:
    """Returns all kinds of work by their names, in the order of the help."""
    found = {verb: Word(_latency) for verb in _VERBS}
    found |= {
        f"{verb}-bw": Word(_bandwidth, _STREAM if verb in _POSTED else _STREAM[:2])
        for verb in _VERBS
    }
    found |= {name: Word(_collective, _CHOICES, sized=name != "barrier") for name in OPERATIONS}
    found["storage"] = Word(_storage, _STORAGE)
    return found


# --- files ---------------------------------------------------------------------------------


def _file(name: str, defaults: Options) -> Work:
    """Reads `work = "…"`, or the table of a kind that a module of READERS reads."""
    if not name:
        raise ModelError("'@' names no file: write @step.toml")
    table = read_table(name)
    if isinstance(table.get("work"), str):
        if len(table) > 1:
            raise ModelError(f"{name}: `work` is the only key of such a file")
        if table["work"].strip().startswith("@"):
            raise ModelError(f"{name}: work is {table['work']!r}: name the work itself, no file")
        return parse(table["work"], defaults)
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in READERS:
        kinds = ", ".join(f'"{each}"' for each in READERS) or "none here"
        raise ModelError(
            f'{name}: kind is {kind!r}: give work = "allreduce:1G", or a kind: {kinds}'
        )
    work: Work = importlib.import_module(READERS[kind]).read(table, name)
    return work


def read_table(name: str) -> dict[str, Any]:
    """Reads a file of TOML.  ModelError: it cannot be read, is too long, or is no TOML."""
    data = read_bytes(Path(name), FILE_BYTES_MAX)
    try:
        return tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ModelError(f"{name}: not TOML: {error}") from error
