# SPDX-License-Identifier: BSD-3-Clause
"""Orders to machines, by a command in ssh's place, and what is made of their answers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import nupa
from nupa.base.errors import LocalError
from nupa.trunk import part
from nupa.trunk.cluster import Machine
from nupa.trunk.remote import ANSWER_BYTES_MAX, SSH, ask, command_line, judged, ssh_words

ALPHA = Machine("alpha", "192.0.2.1", ("host0",))
BETA = Machine("beta", "192.0.2.2", ("host1",), ssh="me@beta", command=("/opt/my nupa/nupa", "-v"))


@pytest.fixture
def ssh(tmp_path: Path) -> Callable[[str], list[str]]:
    """Makes ssh's stand-in of a shell script; its first word is the destination."""

    def make(script: str) -> list[str]:
        path = tmp_path / "ssh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return [str(path)]

    return make


def orders(*machines: Machine) -> dict[str, dict[str, str]]:
    return {machine.name: {"to": machine.name} for machine in machines}


def test_ssh_is_given_a_destination_and_words_for_a_shell() -> None:
    assert command_line(ALPHA, None) == [*SSH, "192.0.2.1", "nupa", "trunk", "part"]
    assert command_line(BETA, ["rsh", "-x"]) == [
        *("rsh", "-x", "me@beta"),
        *("'/opt/my nupa/nupa'", "-v", "trunk", "part"),
    ]


def test_a_machine_with_an_address_of_ours_needs_no_ssh() -> None:
    here = Machine("here", "127.0.0.1", command=("/opt/nupa",))
    assert command_line(here, None) == ["/opt/nupa", "trunk", "part"]
    assert command_line(here._replace(ssh="here"), None)[:1] == ["ssh"]
    assert command_line(here, ["rsh"])[:2] == ["rsh", "127.0.0.1"]
    assert command_line(here._replace(command=("nupa",)), None)[1:] == [
        *("-P", "-m", "nupa.cli"),
        *("trunk", "part"),
    ]


def test_each_machine_is_sent_its_order_and_all_at_once(ssh: Callable[[str], list[str]]) -> None:
    seen = []
    script = 'read order; echo "{\\"heard\\": $order, \\"as\\": \\"$*\\"}"'
    answers = ask(
        [ALPHA, BETA],
        orders(ALPHA, BETA),
        ssh=ssh(f"order=$(cat); {script.partition('; ')[2]}"),
        each=lambda machine, answer: seen.append((machine.name, answer.error)),
    )
    assert answers["alpha"].value == {
        "heard": {"to": "alpha"},
        "as": "192.0.2.1 nupa trunk part",
    }
    assert answers["beta"].value["heard"] == {"to": "beta"}
    assert sorted(seen) == [("alpha", ""), ("beta", "")]


def test_a_machine_that_does_not_answer_is_given_up(ssh: Callable[[str], list[str]]) -> None:
    before = time.monotonic()
    answers = ask([ALPHA], orders(ALPHA), ssh=ssh("exec sleep 60"), deadline_s=0.5)
    assert "no answer after 0.5 s" in answers["alpha"].error
    assert time.monotonic() - before < 30


def test_an_exception_ends_all_commands(ssh: Callable[[str], list[str]], tmp_path: Path) -> None:
    """As Ctrl-C raises one while machines are asked."""
    script = f'[ "$1" = me@beta ] && echo {{}} && exit\necho $$ >{tmp_path}/pid\nexec sleep 60'

    def stop(_machine: Machine, _answer: object) -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            os.sched_yield()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask([ALPHA, BETA], orders(ALPHA, BETA), ssh=ssh(script), each=stop)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_command_that_does_not_exist_is_named() -> None:
    answers = ask([ALPHA], orders(ALPHA), ssh=["/nowhere/ssh"])
    assert answers["alpha"].error == "cannot run /nowhere/ssh: No such file or directory"


@pytest.mark.parametrize(
    ("code", "out", "err", "why"),
    [
        (
            255,
            b"",
            b"ssh: Could not resolve hostname x\n",
            "Could not resolve hostname x; try: ssh",
        ),
        (255, b"", b"", "ssh failed; try: ssh 192.0.2.1 true"),
        (127, b"", b"sh: nupa: not found\n", "`nupa` is not found there (sh: nupa: not found)"),
        (1, b"", b"a\nnupa: no room\n", "no room"),
        (1, b"", b"\x1b[2Jx\n", "?[2Jx"),
        (-9, b"", b"", "`nupa trunk part` ended with -9"),
        (0, b"Welcome!\n{}", b"", "its answer is not JSON"),
        (0, b"", b"", "its answer is not JSON"),
        (0, b"[" * 100000, b"", "its answer is not JSON"),
        (0, b'{"a": "' + b"x" * ANSWER_BYTES_MAX + b'"}', b"", "more than 1048576 bytes"),
        (0, b"[1]", b"", "its answer is not that of `nupa trunk part`"),
        (0, b'{"error": "no \\u001b room"}', b"", "no ? room"),
        (0, b'{"error": 7}', b"", ""),
        (0, b'{"made": true}', b"", ""),
    ],
)
def test_answers_are_judged(code: int, out: bytes, err: bytes, why: str) -> None:
    answer = judged(ALPHA, code, out, err)
    assert why in answer.error
    assert bool(answer.error) is bool(why)


def test_the_command_may_come_by_option_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUPA_TRUNK_SSH", raising=False)
    assert ssh_words(None) is None
    monkeypatch.setenv("NUPA_TRUNK_SSH", "rsh -x 'a b'")
    assert ssh_words(None) == ("rsh", "-x", "a b")
    assert ssh_words("mine") == ("mine",)
    with pytest.raises(LocalError, match="--ssh is empty"):
        ssh_words(" ")
    with pytest.raises(LocalError, match='--ssh is "\'": No closing quotation'):
        ssh_words("'")


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (b"", "no order that `nupa trunk part` knows"),
        (b"[]", "the key `nupa` is missing"),
        (b"{}", "the key `nupa` is missing"),
        (b"[" * 100000, "no order"),
        (b" " * (part.ORDER_BYTES_MAX + 1), f"it has more than {part.ORDER_BYTES_MAX} bytes"),
        (json.dumps(part.order("dance", "lab")).encode(), "`do` is 'dance'"),
        (json.dumps(part.order("up", "lab")).encode(), "the key `source` is missing"),
        (json.dumps(part.order("down", "lab", force=1)).encode(), "`force` is 1"),
        (json.dumps(part.order("look", 7)).encode(), "`fabric` is 7"),  # type: ignore[arg-type]
    ],
)
def test_wrong_orders_are_refused(folder: Path, order: bytes, why: str) -> None:
    del folder
    with pytest.raises(LocalError, match="it is for `nupa trunk up`") as caught:
        part.obey(order)
    assert why in str(caught.value)


def test_orders_of_another_version_are_refused_by_both_versions() -> None:
    order = part.order("look", "lab") | {"nupa": "0.0.1"}
    said = part.obey(json.dumps(order).encode())["error"]
    assert said == (
        f"NUPA {nupa.__version__} is here, and 0.0.1 was asked for: install the same on all "
        f"machines"
    )


def test_a_machine_without_a_part_says_so(folder: Path) -> None:
    del folder
    look = part.obey(json.dumps(part.order("look", "lab")).encode())
    assert look == {"session": "", "alive": False}
    gone = part.obey(json.dumps(part.order("down", "lab", force=False)).encode())
    assert gone == {"fabric_is": "absent"}


def test_a_name_that_no_fabric_can_have_is_refused(folder: Path) -> None:
    del folder
    with pytest.raises(LocalError, match="is not a name for a fabric"):
        part.obey(json.dumps(part.order("down", "../x", force=False)).encode())
