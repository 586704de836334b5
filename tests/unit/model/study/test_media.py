# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model power`: media change the power of a network, and hardly its latency."""

from __future__ import annotations

import json

import pytest

from nupa.cli import main
from nupa.model.profile.profile import load
from nupa.model.study.media import media
from nupa.model.study.question import predict

DUAL = "hpn_upn(100000)"


def test_media_are_in_the_order_of_their_power_and_of_their_energy() -> None:
    found = [each for each in media(DUAL) if each.levels]
    energies = [load(each.name)["energy"] for each in found]
    assert energies == sorted(energies)
    watts = [each.power.watts or 0 for each in found]
    assert watts[0] > 0
    assert watts == sorted(watts)
    assert found[-1].power.media_watts > 2 * found[0].power.media_watts


def test_media_hardly_change_the_latency() -> None:
    times = [each.write_ns for each in media(DUAL)]
    assert max(times) < 1.25 * min(times)


def test_switches_and_adapters_draw_the_same_with_each_medium() -> None:
    found = media(DUAL)
    assert len({(each.power.switches_watts, each.power.adapters_watts) for each in found}) == 1


def test_the_command_names_media_that_are_too_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "power", "--on", DUAL]) == 0
    head, *lines, last = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["MEDIUM", "MEDIA", "SWITCHES"]
    assert "dac" not in {line.split()[0] for line in lines}
    assert last.endswith(": too short for each level")
    assert "dac" in last


def test_power_that_no_profile_states_is_not_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    network = "fat_tree(1024,slingshot-11,fro:1,fro:50)"
    assert main(["model", "power", "--on", network, "--json"]) == 0
    for each in json.loads(capsys.readouterr().out):
        assert each["watts"] is each["switches_watts"] is each["adapters_watts"] is None
    assert main(["model", "power", "--on", network]) == 0
    assert capsys.readouterr().out.count("not known") == 3 * 7
    assert predict("write:8", network).energy_pj is None
    assert predict("write:8", network.replace("slingshot-11", "ib-ndr")).energy_pj


def test_the_parts_of_the_json_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "power", "--on", "fat_tree(1024,ib-ndr,dac:1,lpo:50)", "--json"]) == 0
    for each in json.loads(capsys.readouterr().out):
        parts = each["media_watts"] + each["switches_watts"] + each["adapters_watts"]
        assert parts == pytest.approx(each["watts"])
        assert sum(tier["watts"] for tier in each["tiers"]) == pytest.approx(each["media_watts"])
