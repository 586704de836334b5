# SPDX-License-Identifier: BSD-3-Clause
"""DMTF's redfishtool and event utilities change a fabric, and perftest sees it."""

from __future__ import annotations

import json

import pytest

from nupa.programs.pair import ProgramError, free_port
from tests.programs.needs import needs

from ..lab import Lab
from .served import RedfishLab, served

_ZONES = "/redfish/v1/Fabrics/default/Zones"


@pytest.fixture
def redfish(fabric: Lab):
    with served(fabric) as made:
        yield made


def _endpoint(host: str) -> dict[str, str]:
    return {"@odata.id": f"/redfish/v1/Fabrics/default/Endpoints/{host}"}


def _perftest(lab: Lab, client: str) -> str:
    """Returns "" if ib_write_bw moves data from *client* to host0, else what it said."""
    port = free_port()
    server = [needs("ib_write_bw", "perftest"), "-p", str(port), "-n", "50", "-s", "4096"]
    pair = lab.pair(server, [*server, "localhost"], port=port, hosts=("host0", client))
    try:
        pair.run().check()
    except ProgramError as error:
        return str(error)
    return ""


def test_a_zone_of_redfishtool_is_a_partition_to_perftest(redfish: RedfishLab) -> None:
    lab = redfish.lab
    assert _perftest(lab, "host1") == ""
    body = {
        "Name": "red",
        "ZoneType": "ZoneOfEndpoints",
        "Links": {"Endpoints": [_endpoint("host0"), _endpoint("host1")]},
        "Oem": {"Nupa": {"PKey": "0x0012"}},
    }
    made = json.loads(
        redfish.redfishtool("raw", "POST", _ZONES, f"--data={json.dumps(body)}").check().stdout
    )
    assert made["Oem"]["Nupa"]["PKey"] == "0x0012"
    assert _perftest(lab, "host1") == ""
    assert "Failed status" in _perftest(lab, "host2")
    redfish.redfishtool("raw", "DELETE", made["@odata.id"]).check()
    assert _perftest(lab, "host2") == ""


def test_redfishtool_takes_a_port_down(redfish: RedfishLab) -> None:
    port = "/redfish/v1/Systems/host1/FabricAdapters/nupa_rdma0/Ports/1"
    for wanted, state in (("Disabled", "DOWN"), ("Enabled", "ACTIVE")):
        data = json.dumps({"LinkState": wanted})
        redfish.redfishtool("raw", "PATCH", port, f"--data={data}").check()
        assert redfish.lab.show()["hosts"][1]["state"] == state


def test_the_event_utility_subscribes_tests_and_unsubscribes(redfish: RedfishLab) -> None:
    from .served import PASSWORD, USER

    login = ["-u", USER, "-p", PASSWORD, "-r", redfish.url]
    tool = redfish.tool("rf_event_service.py", *login)
    said = redfish.run(
        [*tool, "subscribe", "--destination", "http://127.0.0.1:9/", "--context", "mine"]
    ).check()
    assert "/redfish/v1/EventService/Subscriptions/1" in said.stdout
    assert "http://127.0.0.1:9/" in redfish.run([*tool, "info"]).check().stdout
    redfish.run([*tool, "unsubscribe", "--id", "1"]).check()
    assert "http://127.0.0.1:9/" not in redfish.run([*tool, "info"]).check().stdout
