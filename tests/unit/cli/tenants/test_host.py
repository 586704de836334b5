# SPDX-License-Identifier: BSD-3-Clause
"""`nupa host`, `nupa up --spare` and `nupa events`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.fabric.tenants.policy import set_policy
from nupa.programs.pair import NUPA, run
from nupa.topology.admission import Admission
from tests.unit.cli.command import Nupa


def test_a_host_joins_drains_and_leaves(nupa: Nupa, fabric: Fabric) -> None:
    said = nupa("host", "add", "host4", "--identity", "vendor=acme", "serial=0012")
    assert said == "host4 is ready of tenant blue in blue-data (rule wide-enough)\n"
    assert nupa("host", "drain", "host4", "--wait", "--timeout", "5s") == (
        "host4 is draining: 0 programs left\n"
    )
    assert nupa("host", "remove", "host4") == ""
    assert nupa("host", "fail", "host3", "it is loud") == ""
    assert nupa("host", "ls").splitlines() == [
        "HOST   STATE   TENANT  PORT    P_KEYS  PROGRAMS",
        "host0  ready   red     ACTIVE  0x8011  0",
        "host1  ready   red     ACTIVE  0x8011  0",
        "host2  ready   blue    ACTIVE  0x8012  0",
        "host3  failed  -       DOWN    -       0",
        "host4  absent  -       DOWN    -       0",
        "host5  absent  -       DOWN    0xffff  0",
    ]
    assert fabric.events.read()[-1].text == "it is loud"


def test_json_has_the_verdict_and_the_states(nupa: Nupa) -> None:
    assert json.loads(nupa("host", "add", "5", "--json")) == {
        "name": "host5",
        "state": "ready",
        "admitted": True,
        "why": "rule wide-enough",
        "tenant": "blue",
        "partitions": ["blue-data"],
    }
    host = json.loads(nupa("host", "ls", "--json"))[5]
    assert host == {
        "name": "host5",
        "state": "ready",
        "tenant": "blue",
        "port": "ACTIVE",
        "pkeys": [0x8012],
        "processes": 0,
    }


def test_accelerators_and_devices_have_states(nupa: Nupa, fabric: Fabric) -> None:
    fabric.partitions.add("training", kind="vpod", tenant="red").join("accelerator:12")
    set_policy(fabric, Admission())
    for name in ("accelerator:7", "device:disk"):
        assert nupa("host", "add", name).startswith(f"{name} is ready")
    assert nupa("host", "drain", "accelerator:7") == "accelerator:7 is draining\n"
    assert nupa("host", "ls", "--accelerators").splitlines() == [
        "ACCELERATOR     STATE     TENANT  PARTITIONS",
        "accelerator:7   draining  -       -",
        "accelerator:12  absent    red     training",
    ]
    assert nupa("host", "fail", "accelerator:12", "it is hot") == ""
    assert nupa("host", "remove", "device:disk") == ""
    assert json.loads(nupa("host", "ls", "--devices", "--json")) == [
        {
            "name": "device:disk",
            "kind": "device",
            "state": "absent",
            "tenants": [],
            "partitions": [],
        }
    ]
    assert fabric.accelerators.state(12) == "failed"
    assert "has no device:tape: its" in nupa.fails("host", "remove", "device:tape")
    nupa.fails("host", "drain", "accelerator:7", "--wait", code=2)


def test_an_identity_is_a_file_or_words(nupa: Nupa, fabric: Fabric, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[admission.rule]]\nname = "acme"\nvendor = ["acme"]\nserial = ["SN*"]\n')
    for name, text in (("a.toml", 'vendor = "acme"\n'), ("a.json", '{"vendor": "acme"}')):
        (tmp_path / name).write_text(text)
        words = ("--identity", tmp_path / name, "serial=SN1", "--policy", policy)
        assert "is ready (rule acme)" in nupa("host", "add", "host4", *words)
        nupa("host", "remove", "host4")
    said = nupa.fails("host", "add", "host4", "--identity", "vendor=acme", "--policy", policy)
    assert "host host4 is refused: rule acme: serial is not known, one of SN* is required" in said
    assert fabric.host("host4").control_state == "failed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vendor = 1.5", "vendor is 1.5: write text or a number"),
        ("vendor = true", "vendor is True: write text or a number"),
        ('"a b" = "x"', "the property 'a b': write letters"),
        ("vendor", "neither TOML nor JSON"),
        ("{", "neither TOML nor JSON"),
        ('{"a": ' + "[" * 9999, "neither TOML nor JSON"),
        (f'v = "{"x" * 128}"', "v has 128 characters: write at most 127"),
        ("#" * 65537, "an identity has at most 65536 bytes"),
    ],
)
def test_a_wrong_identity_changes_nothing(
    nupa: Nupa, fabric: Fabric, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "id").write_text(text)
    assert said in nupa.fails("host", "add", "host4", "--identity", tmp_path / "id")
    assert fabric.host("host4").control_state == "absent"


def test_an_accelerator_joins_by_its_rule(nupa: Nupa, fabric: Fabric, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[admission.rule]]\nname = "new"\nkind = "accelerator"\npartitions = ["red-data"]\n'
        'require = { generation = "UALink200G" }\ntenant = "red"\n'
    )
    words = ("host", "add", "accelerator:7", "--policy", policy, "--identity")
    assert "(rule new)" in nupa(*words, "generation=UALink200G")
    assert fabric.accelerators.vpod(7) == "red-data"
    said = nupa.fails(*words, "generation=UALink128G")
    assert "accelerator 7 is refused: rule new: generation is UALink128G" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "host0"], "host0 of fabric default is ready"),
        (["add", "host9"], "has no host 'host9': its hosts are host0"),
        (["add", "host4", "--identity", "width=9"], "its width is 9, and its port has 4"),
        (["add", "host4", "--identity", "none.toml"], "none.toml: No such file or directory"),
        (["add", "host4", "--policy", "none.toml"], "none.toml: No such file or directory"),
        (["drain", "host4"], "is absent: only a host that is ready can drain"),
        (["remove", "host4"], "host4 of fabric default is absent"),
    ],
)
def test_a_refusal_is_one_line_that_says_why(nupa: Nupa, words: list[str], said: str) -> None:
    assert said in nupa.fails("host", *words)


def test_timeout_is_for_wait(nupa: Nupa) -> None:
    assert "--timeout is for --wait" in nupa.fails(
        "host", "drain", "host0", "--timeout", "1s", code=2
    )


def test_a_program_on_an_absent_host_is_refused_with_the_remedy() -> None:
    found = run([*NUPA, "run", "--host", "host5", "--", "true"], deadline_s=30)
    assert found.returncode == 1
    assert found.stderr.startswith("nupa: ")
    assert "host5 of fabric default is absent: `nupa host add host5` lets it join" in found.stderr


def test_places_are_left_free(nupa: Nupa) -> None:
    nupa("up", "--hosts", 1, "--spare", 2, "--fabric", "lab")
    with Fabric.open("lab") as lab:
        assert [lab.host(n).control_state for n in range(3)] == ["ready", "absent", "absent"]
    said = nupa.fails("up", "--spare", 1, "--topology", "pair", "--fabric", "x", code=2)
    assert '--spare is for --hosts: a topology file has `state = "absent"`' in said
    nupa("down", "lab")


def test_events_are_printed_in_order(nupa: Nupa, fabric: Fabric) -> None:
    last = fabric.events.last
    fabric.events.post("test.kind", "a", "plain text")
    fabric.events.post("test.kind", "a", "bad news", "warning")
    first, second = nupa("events", "--after", last).splitlines()
    assert first.split()[0] == str(last + 1)
    assert first.endswith("test.kind           plain text")
    assert second.endswith("test.kind           warning: bad news")
    found = json.loads(nupa("events", "--after", last, "--json"))
    assert [(e["seq"], e["severity"], e["text"]) for e in found] == [
        (last + 1, "ok", "plain text"),
        (last + 2, "warning", "bad news"),
    ]
    assert len(nupa("events").splitlines()) == last + 2


def test_events_are_followed(nupa: Nupa, fabric: Fabric) -> None:
    last = fabric.events.last
    fabric.events.post("test.kind", "a", "old")
    words = ("events", "--follow", "--for", "100ms", "--json")
    (line,) = nupa(*words, "--after", last).splitlines()
    assert json.loads(line)["text"] == "old"
    assert nupa(*words) == ""
    assert "--for is for --follow" in nupa.fails("events", "--for", "1s", code=2)
