# SPDX-License-Identifier: BSD-3-Clause
"""Prometheus' own tools read `nupa serve`: promtool its metrics, node_exporter its folder."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from nupa.live.adapter import Adapter, adapters
from nupa.live.snapshot import Snapshot
from nupa.programs.pair import NUPA, Program
from tests.programs.needs import needs

from .lab import DEADLINE_S, Lab

ROOT = Path(__file__).parents[2]
SERVE = ("serve", "--listen", "127.0.0.1:0")


@contextmanager
def served(fabric: Lab, *options: str) -> Iterator[str]:
    """Yields the address of a server of the fabric."""
    with fabric.start([*NUPA, *SERVE, *options]) as server:
        yield said(server, "http://", r"http://127\.0\.0\.1:\d+")
        server.signal(signal.SIGTERM)
        server.wait(DEADLINE_S).check()


def said(program: Program, text: str, pattern: str) -> str:
    """Waits for the program to say *text*; returns what matches the pattern."""
    program.wait_said(text, DEADLINE_S)
    (found,) = re.findall(pattern, "".join(program.said()))
    return str(found)


def get(fabric: Lab, url: str) -> str:
    return fabric.must([needs("curl", "curl"), "--silent", "--fail", url])


def traffic(fabric: Lab) -> None:
    """Sends so much from host1 to host0 that no counter of data is 0."""
    fabric.run_pair([needs("ib_send_bw", "perftest"), "-n", "100", "-s", "4096"])


def shown(fabric: Lab) -> list[Adapter]:
    """Returns the adapters as `nupa show` has them."""
    found = fabric.show()
    return list(adapters(Snapshot(found, [], [], [], True, 0, 0)))


def numbers(text: str) -> dict[tuple[str, str], float]:
    """Returns the samples of node_infiniband_*, by name and device."""
    return {
        (sample.name, sample.labels["device"]): sample.value
        for family in parse(text)
        for sample in family.samples
        if sample.name.startswith("node_infiniband_")
    }


@pytest.mark.parametrize("fabric", ["ethernet", "infiniband"], indirect=True)
def test_the_files_of_an_adapter_are_those_that_programs_see(fabric: Lab) -> None:
    traffic(fabric)
    fabric.nupa("port", "host3", "down")
    for host, adapter in zip(("host1", "host3"), shown(fabric)[1::2], strict=True):
        files = adapter.files()
        paths = [f"/sys/class/infiniband/nupa_rdma0/{path}" for path in files]
        seen = fabric.must(fabric.on(host, "cat", *paths)).splitlines(keepends=True)
        assert dict(zip(files, seen, strict=True)) == files


def test_promtool_has_no_complaint(fabric: Lab) -> None:
    traffic(fabric)
    fabric.nupa("fault", "host0", "add", "drop", "--probability", "1%")
    promtool = needs("promtool", "prometheus")
    with served(fabric) as url:
        texts = [get(fabric, f"{url}/metrics"), fabric.nupa("metrics")]
    for text in texts:
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_promtool_takes_each_query_of_the_dashboard(tmp_path: Path) -> None:
    dashboard = json.loads((ROOT / "docs" / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = [
        {
            "record": f"nupa:query{number}",
            "expr": query.replace("$__rate_interval", "1m").replace("$host", ".*"),
        }
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "rules.json"  # YAML, too
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [needs("promtool", "prometheus"), "check", "rules", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(queries)} rules found" in done.stdout


def test_node_exporter_reads_the_folder(fabric: Lab, tmp_path: Path) -> None:
    exporter = needs("prometheus-node-exporter", "prometheus-node-exporter")
    folder = tmp_path / "sysfs"
    with served(fabric, "--sysfs", str(folder)) as url:
        command = [
            *(exporter, "--collector.disable-defaults", "--collector.infiniband"),
            *(f"--path.sysfs={folder}", "--web.listen-address=127.0.0.1:0"),
        ]
        with fabric.start(command) as program:
            address = said(program, "TLS is disabled", r'Listening on" address=(\S+)')
            traffic(fabric)
            expected = {
                ("port_data_transmitted_bytes_total", "port_xmit_data", 4),
                ("port_data_received_bytes_total", "port_rcv_data", 4),
                ("port_packets_transmitted_total", "port_xmit_packets", 1),
                ("port_packets_received_total", "port_rcv_packets", 1),
                ("unicast_packets_received_total", "unicast_rcv_packets", 1),
                ("link_downed_total", "link_downed", 1),
            }
            wanted = {
                (f"node_infiniband_{name}", adapter.name): adapter.counters[counter] * unit
                for adapter in shown(fabric)
                for name, counter, unit in expected
            }
            assert wanted["node_infiniband_port_data_transmitted_bytes_total", "host1"] >= 409600
            found = await_counters(fabric, f"http://{address}/metrics", wanted)
        ours = numbers(get(fabric, f"{url}/metrics"))
    # Same names, labels and values: a dashboard of node_exporter's shows either.
    assert ours == {key: value for key, value in found.items() if key in ours}
    assert len({device for _, device in ours}) == 4
    assert not folder.exists()


def await_counters(
    fabric: Lab, url: str, wanted: dict[tuple[str, str], int]
) -> dict[tuple[str, str], float]:
    """Scrapes until the folder was renewed, which it is each second."""
    for _ in range(100):
        found = numbers(get(fabric, url))
        if wanted.items() <= found.items():
            return found
        fabric.must(["sleep", "0.1"])
    wrong = {key: (value, found.get(key)) for key, value in wanted.items()}
    raise AssertionError(json.dumps({str(key): pair for key, pair in wrong.items()}, indent=1))
