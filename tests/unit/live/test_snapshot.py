# SPDX-License-Identifier: BSD-3-Clause
"""A snapshot has what a fabric shows, as JSON, and changes nothing."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nupa.fabric import Fabric, Fault, LocalError
from nupa.live import VERSION, Observed, take
from nupa.live.snapshot import without_fabric
from nupa.topology.topology import star

MakePair = Callable[..., Any]


def test_a_snapshot_has_what_the_fabric_shows(fabric: Fabric, make_pair: MakePair) -> None:
    make_pair()
    fabric.add_fault("host0", Fault("drop", probability="1%", seed=1))
    found = take(fabric).as_dict()
    shown = fabric.show()
    assert found["version"] == VERSION
    assert found["error"] == ""
    assert found["rates"] is None
    assert {key: found[key] for key in shown} == shown
    assert len(found["qps"]) == len(found["mrs"]) == 2
    assert [fault["kind"] for fault in found["faults"]] == ["drop"]
    assert found["interfaces"] == found["machines"] == []
    assert json.loads(json.dumps(found)).keys() == found.keys()


def test_lists_can_be_left_out(fabric: Fabric, make_pair: MakePair) -> None:
    make_pair()
    brief, full = take(fabric, lists=False), take(fabric)
    assert not brief.lists
    assert brief.as_dict().keys() == full.as_dict().keys()
    assert brief.fabric["qps"] == brief.fabric["mrs"] == brief.fabric["movers"] == []
    # The numbers stay.
    assert [process["qps"] for process in brief.fabric["hosts"][0]["processes"]] == [1]


def test_a_missing_fabric_is_a_snapshot_with_the_reason() -> None:
    error = LocalError("no fabric is named 'x'", errno.ENOENT)
    found = without_fabric("x", error, lambda: 7).as_dict()
    with Fabric(hosts=2) as fabric:
        assert take(fabric).as_dict().keys() - found.keys() <= {
            *("path", "created_ns", "auto"),
        }
    assert (found["name"], found["generation"], found["monotonic_ns"]) == ("x", "", 7)
    assert found["error"] == "no fabric is named 'x'"
    assert found["hosts"] == found["ports"] == found["qps"] == []


def test_an_observer_is_no_user(folder: Path) -> None:
    with Fabric.create("seen", star(2)):
        pass
    with Observed.open("seen") as seen:
        assert not seen.gone
        Fabric.remove("seen")  # not refused
        assert seen.gone
        assert len(seen.show()["hosts"]) == 2
    assert list(folder.iterdir()) == []


def test_an_automatic_fabric_goes_though_it_is_observed(folder: Path) -> None:
    fabric = Fabric.create("auto", star(2), auto=True)
    with Observed.open("auto") as seen:
        assert seen.auto
        fabric.close()
        assert seen.gone
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("folder")
def test_a_fabric_of_the_same_name_is_another_one() -> None:
    with Fabric.create("again", star(2)):
        pass
    with Observed.open("again") as seen:
        Fabric.remove("again")
        with Fabric.create("again", star(3)):
            assert seen.gone
        Fabric.remove("again")


@pytest.mark.usefixtures("folder")
def test_an_observer_needs_a_fabric() -> None:
    with pytest.raises(LocalError, match="no fabric is named 'none'") as caught:
        Observed.open("none")
    assert caught.value.errno == errno.ENOENT


@pytest.mark.usefixtures("folder")
def test_an_observer_writes_nothing() -> None:
    with Fabric.create("still", star(2)) as fabric:
        fabric.add_fault("host0", Fault("drop", seed=1))
        with Observed.open("still") as seen:
            before = _data(fabric.path)
            take(seen)
            take(seen, lists=False)
            assert _data(fabric.path) == before
    Fabric.remove("still")


_PAGE = 4096


def _data(path: str) -> dict[int, bytes]:
    """Returns the pages of a sparse file that are not zero, by their places.

    A page that is only read may be allocated, and is zero then.
    """
    found: dict[int, bytes] = {}
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        end = 0
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # ENXIO: no data behind it
                return found
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            data = os.pread(file.fileno(), end - start, start)
            for at in range(0, len(data), _PAGE):
                if any(page := data[at : at + _PAGE]):
                    found[start + at] = page
