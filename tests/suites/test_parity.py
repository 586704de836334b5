# SPDX-License-Identifier: BSD-3-Clause
"""A pyverbs program runs with its import changed: PyPI's pyverbs and nupa.verbs are compared."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from .conftest import NUPA_VERBS, OWN_PYVERBS, pypi
from .upstream import HERE, PYPI, Suite

#: Vendors' modules have any name here, see as_pyverbs/vendor.py.
VENDORS = "providers"

# A parameter of Cython: [type] name [not None] [= default].
_NAME = re.compile(r"(\w+)(?: not None)?$")


@pytest.fixture
def both(tmp_path: Path) -> tuple[Suite, Suite]:
    """Returns PyPI's pyverbs over the drop-in library, and ours."""
    folder = tmp_path / "suite"
    folder.mkdir()
    theirs = pypi(folder, (sys.executable, "-P"), OWN_PYVERBS)
    return theirs, Suite(theirs.version, folder, NUPA_VERBS)


def written(suite: Suite, script: str, arguments: Sequence[str], scratch: Path) -> dict[str, Any]:
    """Returns the JSON that *script* writes, run by *suite*."""
    scratch.mkdir()
    out = scratch / "out.json"
    said = suite.execute(HERE / script, [str(out), *arguments], scratch)
    assert out.exists(), said
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def split_parameters(text: str) -> list[list[Any]]:
    """Returns [name, has a default] of each parameter in Cython's *text*, but for **kwargs."""
    parameters, depth, part = [], 0, ""
    for character in text + ",":
        if character == "," and depth == 0:
            parameters.append(part.strip())
            part = ""
            continue
        depth += (character in "([") - (character in ")]")
        part += character
    found: list[list[Any]] = []
    for parameter in parameters:
        if not parameter or parameter.startswith("*"):
            continue
        name, equals, _ = parameter.partition("=")
        match = _NAME.search(name.strip())
        assert match is not None, parameter
        found.append([match[1], bool(equals)])
    return found


def constructors(source: str) -> Iterator[tuple[str, list[list[Any]], set[str]]]:
    """Yields class, parameters of its __init__, attributes with a setter, of Cython's text."""
    for text in re.split(r"^(?:cdef )?class ", source, flags=re.MULTILINE)[1:]:
        name = re.match(r"\w+", text)
        assert name is not None
        init = re.search(r"def __init__\((.*?)\):\n", text, re.DOTALL)
        setters = re.findall(r"@(\w+)\.setter", text)
        yield name[0], split_parameters(init[1]) if init else [], set(setters)


def as_sources_have_it(names: dict[str, Any]) -> dict[str, Any]:
    """Completes *names* by what a compiled module does not tell: constructors and setters."""
    [sources] = PYPI.glob("pyverbs-*/rdma-core/pyverbs")
    for module, entries in names.items():
        source = sources / f"{module}.pyx"
        for name, init, setters in constructors(source.read_text() if source.exists() else ""):
            entry = entries.get(name)
            if entry is None:
                continue  # private
            entry["init"] = init or entry["init"]
            for member, described in entry["members"].items():
                described["writable"] = member in setters
    return names


def cannot_be_called_alike(theirs: list[list[Any]] | None, ours: list[list[Any]] | None) -> bool:
    """Tells whether a call that fits *theirs* would not fit *ours*."""
    if theirs is None or ours is None:
        return False
    if [name for name, _ in ours[: len(theirs)]] != [name for name, _ in theirs]:
        return True
    optional = [default for _, default in theirs] + [True] * len(ours)
    return any(may and not default for (_, default), may in zip(ours, optional, strict=False))


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """Yields each name, call or setter that theirs have and ours have not."""
    for module, entries in theirs.items():
        have = ours[module]
        if have is None:
            yield module
            continue
        for name, entry in entries.items():
            home = entry["home"]
            if home is not None and not home.startswith("pyverbs"):
                continue  # of Python's own library
            path = f"{module}.{name}"
            if name not in have:
                yield path
                continue
            yield from _of_entry(path, entry, have[name])


def _of_entry(path: str, theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    if "value" in theirs and theirs["value"] != ours.get("value"):
        yield f"{path} == {theirs['value']}"
    if cannot_be_called_alike(theirs.get("parameters"), ours.get("parameters")):
        yield f"{path}()"
    if cannot_be_called_alike(theirs.get("init"), ours.get("init")):
        yield f"{path}.__init__()"
    if theirs.get("prints") and not ours.get("prints"):
        yield f"{path}.__str__"
    for name, member in theirs.get("members", {}).items():
        have = ours.get("members", {}).get(name)
        if have is None:
            yield f"{path}.{name}"
        elif cannot_be_called_alike(member["parameters"], have["parameters"]):
            yield f"{path}.{name}()"
        elif member["writable"] and not have["writable"]:
            yield f"{path}.{name}="


@pytest.mark.timeout(120)
def test_every_public_name_of_pyverbs_is_here_or_has_a_reason(
    both: tuple[Suite, Suite], tmp_path: Path
) -> None:
    folder = PYPI / "python" / "pyverbs"
    modules = sorted({path.name.partition(".")[0] for path in folder.glob("[a-z]*.*")})
    assert len(modules) > 20
    assert VENDORS not in modules
    theirs, ours = (
        written(suite, "names.py", modules, tmp_path / name)
        for name, suite in zip(("theirs", "ours"), both, strict=True)
    )
    groups = tomllib.loads((HERE / "missing.toml").read_text())["missing"]
    assert all(group["because"] for group in groups)
    listed = [name for group in groups for name in group["names"]]
    assert len(listed) == len(set(listed)), "a name stands twice in missing.toml"
    found = list(differences(as_sources_have_it(theirs), ours))
    assert sorted(set(found) - set(listed)) == [], "missing, without a reason in missing.toml"
    assert sorted(set(listed) - set(found)) == [], "in missing.toml, but not missing"


@pytest.mark.timeout(120)
def test_what_can_be_built_prints_and_fails_as_pyverbs_does(
    both: tuple[Suite, Suite], tmp_path: Path
) -> None:
    theirs, ours = (
        written(suite, "results.py", [str(HERE / "results.toml")], tmp_path / name)
        for name, suite in zip(("theirs", "ours"), both, strict=True)
    )
    assert len(theirs) > 100
    unlike = [
        f"{text}\n theirs: {theirs[text]!r}\n   ours: {ours[text]!r}"
        for text in theirs
        if theirs[text] != ours[text]
    ]
    assert not unlike, "\n".join(unlike)


def test_a_difference_in_a_call_is_found() -> None:
    theirs = split_parameters("self, PD pd not None, cqe = 100, x=f(1, 2), **kwargs")
    assert theirs == [["self", False], ["pd", False], ["cqe", True], ["x", True]]
    ours = [list(parameter) for parameter in theirs]
    assert not cannot_be_called_alike(theirs, ours)
    assert not cannot_be_called_alike(theirs, [*ours, ["more", True]])
    assert cannot_be_called_alike(theirs, [*ours, ["more", False]])
    assert cannot_be_called_alike(theirs, [["self", False], ["domain", False], *ours[2:]])
    assert cannot_be_called_alike(theirs, ours[:3])
    ours[2] = ["cqe", False]
    assert cannot_be_called_alike(theirs, ours)
