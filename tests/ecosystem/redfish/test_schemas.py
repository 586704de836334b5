# SPDX-License-Identifier: BSD-3-Clause
"""DMTF's Redfish Service Validator: each property of each resource is as its schema has it.

The schema bundle is in no package, so facts.txt has what the service needs of it.  Where the bundle
lies in the folder REDFISH_SCHEMAS, that is what judges.  Schemas of our own are the published ones.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from nupa.programs.pair import NUPA
from nupa.serve.redfish import root, schemas
from nupa.serve.redfish.schemas import FOLDER

from ..lab import DEADLINE_S, Lab
from . import csdl
from .served import PASSWORD, USER, RedfishLab, await_text, served

_FABRIC = "/redfish/v1/Fabrics/default"


@pytest.fixture
def redfish(fabric: Lab):
    command = [*NUPA, "fm", "serve", "--fabric", "default", "--sld", "256M", "--mld", "512M"]
    with fabric.start(command) as switch, served(fabric) as made:
        await_text(switch, "nupa fm ls")
        fabric.nupa("fm", "--fabric", "default", "bind", "0", "1", "4")  # ports 0 to 3 are hosts
        yield made
        switch.signal(15)
        switch.wait(DEADLINE_S).check()


def _endpoints(*names: str) -> dict[str, list[dict[str, str]]]:
    return {"Endpoints": [{"@odata.id": f"{_FABRIC}/Endpoints/{name}"} for name in names]}


def _fill(redfish: RedfishLab) -> None:
    """Makes one of each resource that requests make."""
    hosts = _endpoints("host0", "host1")
    tenant = {"@odata.id": f"{_FABRIC}/Zones/tenant-acme"}
    bodies = [
        ("Zones", {"Name": "acme", "ZoneType": "ZoneOfZones", "Links": hosts}),
        ("Zones", {"Name": "red", "Links": {**hosts, "ContainedByZones": [tenant]}}),
        ("Zones", {"Name": "pod", "Links": _endpoints("accelerator-5", "device-x", "device-sld4")}),
    ]
    owner = _endpoints("host0")["Endpoints"]
    region = {"Name": "log", "Links": {"InitiatorEndpoints": owner}}
    bodies += [("Connections", {**region, "Oem": {"Nupa": {"SizeBytes": 1 << 21}}})]
    for collection, body in bodies:
        redfish.post(f"{_FABRIC}/{collection}", body)
    subscription = {"Destination": "http://127.0.0.1:9/", "Protocol": "Redfish", "Context": "mine"}
    redfish.post("/redfish/v1/EventService/Subscriptions", subscription)


@pytest.mark.slow
def test_the_service_validator_finds_no_failure(redfish: RedfishLab, tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    bundle = os.environ.get("REDFISH_SCHEMAS")
    if bundle:
        shutil.copytree(bundle, folder)
    else:
        folder.mkdir()
        csdl.write(folder)
    for file in FOLDER.glob("*.xml"):
        shutil.copy(file, folder)
    _fill(redfish)
    options = ["-r", redfish.url, "-u", USER, "-p", PASSWORD, "--authtype", "Basic", "--skipschema"]
    options += ["--schema_directory", str(folder), "--logdir", str(tmp_path / "logs")]
    # A few of the collections whose members are all alike.
    options += ["--collectionlimit", "JsonSchemaFile", "3", "ComputerSystem", "2", "Port", "2"]
    options += ["VirtualPCI2PCIBridge", "2", "CXLLogicalDevice", "2"]
    outcome = redfish.run(redfish.tool("rf_service_validator", *options))
    counts = re.findall(r"\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|", _plain(outcome.stdout))
    report = "\n".join(_failures(tmp_path / "logs"))
    assert counts, outcome.describe()
    passed, warned, failed = map(int, counts[-1])
    assert (failed, outcome.returncode) == (0, 0), report
    assert warned == 0, report
    assert passed > 1500


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _failures(logs: Path) -> list[str]:
    """Returns the lines of the debug log that tell of failures and warnings."""
    lines = [line for file in logs.rglob("*.log") for line in file.read_text().splitlines()]
    return [line for line in lines if " - FAIL - " in line or " - WARN - " in line][:60]


def test_the_facts_have_the_versions_of_the_service() -> None:
    found = {kind.name: kind.version for kind in csdl.parse(csdl.FACTS.read_text())}
    assert found == {name: root.DMTF[name] for name in found}
    assert set(root.DMTF) - set(found) == {"Event", "Message"}
    assert len(schemas.names()) == 3
