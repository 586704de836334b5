# SPDX-License-Identifier: BSD-3-Clause
"""Networks as the command line names them: `--on ib-ndr,fat_tree(1024,roce-400,dac:2,lpo:50)`.

A name is a profile (its endpoints on one switch, or on as many tiers as they need), a preset of the
fabric, a generator with its arguments, or a file: TOML of this package or of the fabric, or a
format of `readers`.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from nupa.model.errors import ModelError
from nupa.model.network import fabric, generators, levels_file
from nupa.model.network.network import Network
from nupa.model.network.path import Cable
from nupa.model.network.readers import files
from nupa.model.profile.profile import load, names, own_folder
from nupa.topology import file as topology_file
from nupa.topology import toml_table
from nupa.topology.topology import TopologyError

GENERATORS: dict[str, Callable[..., Network]] = {
    "nvl": generators.nvl,
    "ualink_pod": generators.ualink_pod,
    "fat_tree": generators.fat_tree,
    "rail": generators.rail,
    "dragonfly": generators.dragonfly,
    "hpn_upn": generators.hpn_upn,
}
_CALL = re.compile(r"([A-Za-z]\w*)\((.*)\)\Z", re.DOTALL)
_MEDIUM = re.compile(r"([a-z0-9-]+):([0-9.]+)m?\Z")
_PAIR_RANKS = 2
#: This machine: a template, of which `nupa model calibrate` makes a profile for each mover.
HERE = "here"
_NOT_CALIBRATED = "here: figures are assumed: `nupa model calibrate` measures this machine"


def split(text: str) -> list[str]:
    """Returns the parts of a list: commas within brackets separate arguments.

    >>> split("ib-ndr,nvl(72),fat_tree(64,roce-400)")
    ['ib-ndr', 'nvl(72)', 'fat_tree(64,roce-400)']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise ModelError(f"{text!r}: the brackets do not match")
    return [part.strip() for part in parts]


def parse(text: str, ranks: int = 0) -> Network:
    """Returns the network of that name.

    *ranks*: the endpoints of a profile that is named alone; 0: two.  A generator or file has its
    own number, of which `Network.first` takes a part.  ModelError: no such name, with the nearest;
    arguments that do not fit it.
    """
    name = text.strip()
    if "\0" in name:
        raise ModelError(f"no network {name!r}: no file has a name with a NUL byte")
    call = _CALL.match(name)
    if call:
        return _generate(call[1], call[2], name)
    if "/" in name or Path(name).suffix in files.SUFFIXES or name.endswith(".toml"):
        return _file(Path(name), ranks)
    if name == HERE:
        return _here(ranks or _PAIR_RANKS)
    # The second kind: what `nupa model calibrate` wrote.
    if name in names("fabric") or (name and (own_folder() / f"{name}.toml").is_file()):
        return of_profile(name, ranks or _PAIR_RANKS)
    if name in topology_file.presets():
        return fabric.network(topology_file.load(name))
    if name in GENERATORS:
        return GENERATORS[name]()
    raise ModelError(f"no network {name!r}: {_advice(name)}")


def _here(ranks: int) -> Network:
    """Returns this machine by its best calibrated mover; none: the template, with a note."""
    for mover in ("shared", "cma", "relay", "pool"):
        if (own_folder() / f"{HERE}-{mover}.toml").is_file():
            return of_profile(f"{HERE}-{mover}", ranks)
    found = of_profile(HERE, ranks)
    return replace(found, notes=(*found.notes, _NOT_CALIBRATED))


def _advice(name: str) -> str:
    """Returns what to give in place of a name that no network has."""
    if "(" in name:
        return "a generator's arguments are within brackets, as fat_tree(64,ib-ndr)"
    known = [*names("fabric"), *topology_file.presets(), *GENERATORS]
    near = difflib.get_close_matches(name.lower(), known, 1)
    if near:
        return f"is {near[0]!r} meant?"
    if name in names():
        return f"it is the profile of a {load(name).kind}, and a fabric's is needed"
    return (
        "give a profile (`nupa model profiles` lists them), a preset "
        f"({', '.join(topology_file.presets())}), a generator ({', '.join(GENERATORS)}) or a file"
    )


def of_profile(name: str, ranks: int) -> Network:
    """Returns so many endpoints of a profile: on one switch if it has the ports, else a tree."""
    profile = load(name)
    one_tier = "domain" in profile.figures and "radix" not in profile.figures
    if one_tier or ranks <= profile.get("radix", generators.RADIX):
        return generators.one_switch(ranks, profile)
    return generators.fat_tree(ranks, profile)


def _file(path: Path, ranks: int) -> Network:
    if path.suffix == ".toml":
        try:
            data = toml_table.read(path)
            table = toml_table.document(data, str(path))
            if table.any("level", None) is None:
                return fabric.network(topology_file.parse(data, str(path), path.stem))
        except TopologyError as error:
            raise ModelError(str(error)) from error
        return levels_file.network(table, str(path), path.stem)
    return files.read(path, ranks)


def _generate(name: str, arguments: str, text: str) -> Network:
    """Returns what a generator makes, with the text as its name: that has all arguments."""
    generator = GENERATORS.get(name)
    if generator is None:
        near = difflib.get_close_matches(name, GENERATORS, 1)
        advice = f"is {near[0]!r} meant?" if near else f"there are {', '.join(GENERATORS)}"
        raise ModelError(f"no generator {name!r}: {advice}")
    parameters = inspect.signature(generator).parameters.values()
    positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    options = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
    options.pop("links")
    found: dict[str, Any] = {}
    links: list[Cable] = []
    numbers = iter(each for each in positional if each not in _PROFILES)
    profiles = iter(each for each in positional if each in _PROFILES)
    for word in split(arguments) if arguments.strip() else []:
        key, sign, value = (part.strip() for part in word.partition("="))
        medium = _MEDIUM.match(word)
        if sign:
            if key not in options:
                wanted = ", ".join(options) or "none"
                raise ModelError(f"{text}: no option {key!r}: {name} has {wanted}")
            found[key] = _number(value, text, whole=options[key].annotation == "int")
        elif medium:
            links.append(Cable(load(medium[1]), _number(medium[2], text)))
        elif ":" in word:
            raise ModelError(f"{text}: {word!r} is no medium with metres, as dac:2 is")
        elif re.match(r"[-+.0-9]", word):
            found[_next(numbers, word, text)] = _number(word, text, whole=True)
        else:
            found[_next(profiles, word, text)] = load(word)
    try:
        made = generator(**found, **({"links": links} if links else {}))
    except (TypeError, ZeroDivisionError) as error:
        raise ModelError(f"{text}: {error}") from error
    return replace(made, name=text.replace(" ", "")) if found or links else made


_PROFILES = ("profile", "scale_up", "scale_out")
_NUMBER_MOST = (1 << 32) - 1


def _next(parameters: Iterator[str], word: str, text: str) -> str:
    try:
        return next(parameters)
    except StopIteration:
        raise ModelError(f"{text}: {word!r} is one argument too many of its kind") from None


def _number(value: str, text: str, *, whole: bool = False) -> Any:
    """Returns a number from 0 to 2^32 - 1.  ModelError: it is none, or it is to be whole."""
    try:
        number = float(_fraction(value))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ModelError(f"{text}: {value!r} is not a number, as 2, 0.5 or 1/15 are") from None
    if not isfinite(number) or not 0 <= number <= _NUMBER_MOST:
        raise ModelError(f"{text}: {value} was given: give a number from 0 to 2^32 - 1")
    if whole and not number.is_integer():
        raise ModelError(f"{text}: {value} was given: give a whole number")
    return int(number) if number.is_integer() else number


def _fraction(value: str) -> float:
    """Returns the value of `0.5` or `1/2`."""
    above, sign, below = value.replace("_", "").partition("/")
    return float(above) / float(below) if sign else float(above)
