# SPDX-License-Identifier: BSD-3-Clause
"""/metrics: what Prometheus' own parser reads of it is what the fabric shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse

from nupa.fabric import Fabric, Fault
from nupa.live import take
from nupa.live.snapshot import Snapshot, without_fabric
from nupa.serve.metrics import Metrics
from nupa.serve.service import Service
from nupa.serve.tenant_totals import TenantTotals
from tests.unit.serve.clients import own, stranger

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(text: str) -> Samples:
    """Returns the samples by name and values of labels, which are sorted by the label."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def encoded(snapshot: Snapshot) -> Samples:
    return samples(Metrics().encode(snapshot)[0].decode())


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=2) as fabric:
        yield fabric


def with_counters(fabric: Fabric, **counters: int) -> Snapshot:
    """A snapshot in which the port of host0 has these counters."""
    snapshot = take(fabric, lists=False)
    for port in snapshot.fabric["ports"]:
        if port["name"] == "host0/1":
            port["counters"] |= counters
    return snapshot


def test_an_adapter_has_the_names_of_node_exporter(fabric: Fabric) -> None:
    fabric.set_port("host1", False)
    found = encoded(with_counters(fabric, port_xmit_data=25, port_rcv_packets=7))
    at = ("host0", "1")
    assert found["node_infiniband_info", ("NUPA", "host0", "nupa-1", "NUPA")] == 1
    assert found["node_infiniband_port_data_transmitted_bytes_total", at] == 100
    assert found["node_infiniband_port_packets_received_total", at] == 7
    assert found["node_infiniband_state_id", at] == 4
    assert found["node_infiniband_physical_state_id", at] == 5
    assert found["node_infiniband_state_id", ("host1", "1")] == 1
    assert found["node_infiniband_physical_state_id", ("host1", "1")] == 3
    assert found["node_infiniband_link_downed_total", ("host1", "1")] == 1
    assert found["node_infiniband_rate_bytes_per_second", at] == 100e9 / 8


def test_links_have_both_directions(fabric: Fabric) -> None:
    fabric.set_port("host1", False)
    found = encoded(with_counters(fabric, port_xmit_data=25, port_xmit_discards=3))
    link = ("switch0/1", "host0/1")  # peer, port
    assert found["nupa_link_transmitted_bytes_total", link] == 100
    assert found["nupa_link_discarded_operations_total", link] == 3
    assert found["nupa_link_up", link] == found["nupa_link_up", link[::-1]] == 1
    assert found["nupa_link_up", ("switch0/2", "host1/1")] == 0


def test_faults_are_summed_by_port_and_kind(fabric: Fabric) -> None:
    for seed in (1, 2):
        fabric.add_fault("host0", Fault("drop", probability="1%", seed=seed))
    fabric.add_fault("host1", Fault("delay", seed=3))
    found = encoded(take(fabric))
    assert found["nupa_faults", ("drop", "host0/1")] == 2
    assert found["nupa_faults", ("delay", "host1/1")] == 1
    assert found["nupa_fault_hits_total", ("drop", "host0/1")] == 0


def test_each_message_counter_of_a_host_is_there(fabric: Fabric) -> None:
    snapshot = take(fabric)
    snapshot.fabric["hosts"][1]["hw_counters"]["fault_dropped"] = 9
    found = encoded(snapshot)
    assert found["nupa_host_messages_total", ("host1", "fault_dropped")] == 9
    kinds = {labels[1] for name, labels in found if name == "nupa_host_messages_total"}
    assert kinds == set(snapshot.fabric["hosts"][0]["hw_counters"])


def test_interfaces_count_frames(fabric: Fabric) -> None:
    counters = {"tx_bytes": 60, "tx_packets": 1, "tx_down": 2, "rx_refused": 3}
    up = [{"host": "host0", "state": "up", "counters": counters}]
    found = encoded(take(fabric)._replace(interfaces=up))
    assert found["nupa_interface_up", ("host0",)] == 1
    assert found["nupa_interface_transmitted_bytes_total", ("host0",)] == 60
    assert found["nupa_interface_dropped_frames_total", ("host0",)] == 5


def test_without_a_fabric_there_is_only_that() -> None:
    assert encoded(without_fabric("x", OSError("gone"))) == {("nupa_fabric_up", ()): 0}


def tenants(fabric: Fabric, names: str, of: str, words: int, generation: str = "1") -> Snapshot:
    """A snapshot with these tenants, host0 being of one, whose port has sent so much."""
    snapshot = with_counters(fabric, port_xmit_data=words)
    snapshot.fabric["tenants"] = [
        {
            "name": name,
            "rate": 5,
            "used": dict.fromkeys(QUOTAS, 1),
            "quotas": dict.fromkeys(QUOTAS, 2),
        }
        for name in names.split()
    ]
    snapshot.fabric["hosts"][0]["tenant"] = of
    snapshot.fabric["generation"] = generation
    return snapshot


QUOTAS = ("qps", "mrs", "registered_bytes", "pool_bytes", "attachments")


def test_tenants_have_their_use_and_quotas(fabric: Fabric) -> None:
    found = encoded(tenants(fabric, "red blue", "red", 0))
    assert found["nupa_pool_bytes", ("red",)] == 1
    assert found["nupa_tenant_quota_pool_bytes", ("blue",)] == 2
    assert found["nupa_tenant_queue_pairs", ("blue",)] == 1
    assert found["nupa_tenant_rate_limit_bytes_per_second", ("red",)] == 5


def test_bytes_count_for_the_tenant_that_the_host_has(fabric: Fabric) -> None:
    totals = TenantTotals()
    both = "red blue"
    assert totals.update(tenants(fabric, both, "red", 100)) == {"blue": (0, 0), "red": (0, 0)}
    assert totals.update(tenants(fabric, both, "red", 150))["red"] == (200, 0)
    moved = totals.update(tenants(fabric, both, "blue", 160))
    assert moved == {"blue": (40, 0), "red": (200, 0)}
    # A tenant that goes and comes again begins anew; so does another fabric.
    assert totals.update(tenants(fabric, "blue", "blue", 160)) == {"blue": (40, 0)}
    assert totals.update(tenants(fabric, both, "red", 160))["red"] == (0, 0)
    assert totals.update(tenants(fabric, both, "red", 170, "2"))["red"] == (0, 0)


@given(st.text(max_size=40))
def test_any_accept_header_is_answered(accept: str) -> None:
    body, content_type = Metrics().encode(without_fabric("x", OSError("gone")), accept)
    assert b"nupa_fabric_up 0" in body
    assert content_type.startswith(("text/plain", "application/openmetrics-text"))


HOSTILE = (
    "application/openmetrics-text; version=x",
    "application/openmetrics-text; version=",
    "application/openmetrics-text; version=1.0.0; escaping=\r\nX: y",
    "text/plain; version=9.9.9.9.9; escaping=?",
    ";;;,,,==,text/plain;version",
)


@pytest.mark.parametrize("accept", HOSTILE)
def test_a_hostile_accept_header_gets_plain_text(accept: str) -> None:
    body, content_type = Metrics().encode(without_fabric("x", OSError("gone")), accept)
    assert b"nupa_fabric_up 0" in body
    assert "\n" not in content_type


def test_the_route_answers_in_both_formats(service: Service) -> None:
    client = own(service)
    plain = client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=")
    found = samples(plain.text)
    assert found["nupa_fabric_up", ()] == 1
    assert ("nupa_attachments", ("host2",)) in found
    openmetrics = client.get(
        "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}
    )
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in parse_openmetrics(openmetrics.text)}
    assert {"nupa_link_up", "node_infiniband_port_data_received_bytes"} <= names


def test_a_stranger_has_to_log_in(service: Service) -> None:
    assert stranger(service).get("/metrics").status_code == 401


def test_several_who_scrape_share_a_snapshot(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    tick = service.snapshots.tick
    monkeypatch.setattr(
        service.snapshots, "tick", lambda **options: taken.append(0) or tick(**options)
    )
    monkeypatch.setattr("nupa.serve.metrics._MAX_AGE_S", 3600)
    client = own(service)
    for _ in range(3):
        client.get("/metrics").raise_for_status()
    assert len(taken) == 1
