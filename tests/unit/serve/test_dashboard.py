# SPDX-License-Identifier: BSD-3-Clause
"""docs/grafana.json asks only for metrics, and labels, that /metrics has."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from nupa.fabric import Fabric, Fault
from nupa.live import take
from nupa.serve.metrics import Metrics

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs" / "grafana.json").read_text()
)
_NAME = re.compile(r"\b(?:nupa|node_infiniband)_\w+")
_MATCHER = re.compile(r"(\w+)\{([^}]*)\}")


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """The names of the labels of each metric, of a fabric that has something of everything."""
    interface = {"host": "host0", "state": "up", "counters": {}}
    with Fabric(hosts=2) as fabric:
        fabric.tenants.add("red", rate=10**6).assign("host0")
        fabric.add_fault("host0", Fault("drop", seed=1))
        snapshot = take(fabric, lists=False)._replace(interfaces=[interface])
    found = defaultdict(set)
    for family in parse(Metrics().encode(snapshot)[0].decode()):
        for sample in family.samples:
            found[sample.name] |= sample.labels.keys()
    return found


def expressions() -> list[tuple[str, str]]:
    return [
        (target["expr"], target["legendFormat"])
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ]


def test_each_query_names_metrics_that_there_are(labels: dict[str, set[str]]) -> None:
    queries = [
        *(expression for expression, _ in expressions()),
        *(
            variable["query"]["query"]
            for variable in DASHBOARD["templating"]["list"]
            if variable["type"] == "query"
        ),
    ]
    for query in queries:
        names = _NAME.findall(query)
        assert names, query
        assert set(names) <= labels.keys(), query


def test_each_label_is_one_of_its_metric(labels: dict[str, set[str]]) -> None:
    for expression, legend in expressions():
        (known, *more) = [labels[name] for name in _NAME.findall(expression)]
        assert all(known == other for other in more), expression
        for name, matchers in _MATCHER.findall(expression):
            used = {re.split("[=!]", matcher)[0] for matcher in matchers.split(",")}
            assert used <= labels[name], expression
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= known, legend
        for names in re.findall(r"by \(([^)]*)\)", expression):
            assert set(names.split(", ")) <= known, expression


def test_panels_have_numbers_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
