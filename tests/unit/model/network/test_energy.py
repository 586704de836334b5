# SPDX-License-Identifier: BSD-3-Clause
"""Energy and power by medium: a large fabric's power differs, its latency hardly does."""

from __future__ import annotations

import pytest

from nupa.model.engine.flows.loads import energy_pj
from nupa.model.engine.flows.plans import flows
from nupa.model.engine.message import message
from nupa.model.errors import ModelError
from nupa.model.network.energy import by_medium, fabric_power, path_energy, with_media
from nupa.model.network.generators import fat_tree, hpn_upn
from nupa.model.network.network import Network
from nupa.model.network.path import Cable
from nupa.model.profile.profile import load
from nupa.model.work.collective import Collective
from nupa.model.work.perftest import Perftest

OPTICS = ("fro", "lro", "lpo", "npo", "cpo")


@pytest.fixture(scope="module")
def network() -> Network:
    return hpn_upn(100_000)


def test_optics_of_100_000_gpus_differ_in_power_and_hardly_in_latency(network: Network) -> None:
    found = by_medium(network, OPTICS)
    watts = {name: power.media_watts for name, (_, power) in found.items()}
    assert watts["fro"] > watts["lro"] > watts["lpo"] > watts["npo"] > watts["cpo"]
    assert watts["fro"] / watts["cpo"] > 2.5
    times = {
        name: sum(stage.ns for stage in message(made.level_path(1), "write", 4096))
        for name, (made, _) in found.items()
    }
    # Two retimed links are 0.2 us: the switch and the adapters take eighteen times as long.
    assert max(times.values()) / min(times.values()) < 1.06
    stores = {
        name: sum(stage.ns for stage in message(made.level_path(0), "store", 64))
        for name, (made, _) in found.items()
    }
    # A store over the scale-up network is short, so a DSP shows; media without one are alike.
    assert stores["fro"] - stores["cpo"] == pytest.approx(
        2 * (load("fro")["conversion"] - load("cpo")["conversion"])
    )
    assert stores["lpo"] / stores["cpo"] < 1.02
    work = Collective("all-reduce", 1 << 30, "hierarchical")
    long = {name: flows(made, work.plan(made)).time_ns for name, (made, _) in found.items()}
    assert max(long.values()) / min(long.values()) < 1.04


def test_each_cable_has_two_modules_of_the_power_that_its_sheet_states() -> None:
    made = with_media(fat_tree(128, "roce-800", links=[Cable(None, 10)] * 2), "fro")
    power = fabric_power(made)
    assert [(tier.cables, tier.modules) for tier in power.tiers] == [(128, 256)] * 2
    # 14 to 16 W for a module of 800 Gb/s.
    for tier in power.tiers:
        assert 14 <= tier.watts / tier.modules <= 16


def test_a_medium_that_does_not_reach_a_level_is_replaced_by_one_that_does(
    network: Network,
) -> None:
    made, power = by_medium(network, ("dac",))["dac"]
    assert [level.link.medium and level.link.medium.name for level in made.levels].count("dac") == 0
    assert all(tier.medium != "dac" for tier in power.tiers)
    with pytest.raises(ModelError, match=r"dac reaches .* m: 20 m was asked: choose "):
        with_media(network, "dac")


def test_energy_of_a_message_is_that_of_its_path() -> None:
    made = with_media(fat_tree(128, "roce-800", links=[Cable(None, 10)] * 2), "lpo")
    plan = Perftest("write", 1 << 20).plan(made)
    found = flows(made, plan)
    path = path_energy(made.level_path(1))
    assert path.media == 4 * load("lpo")["energy"]
    assert energy_pj(made, found.loads) == pytest.approx(found.sent * 8 * path.total)
