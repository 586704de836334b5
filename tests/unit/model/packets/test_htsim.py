# SPDX-License-Identifier: BSD-3-Clause
"""uet-htsim's experiments that depend on chance; nupa.model.validate judges the others."""

from __future__ import annotations

import pytest

from nupa.model.engine.packets.run import run
from nupa.model.errors import ModelError
from nupa.model.validate import data
from nupa.model.validate.htsim import (
    MB2,
    experiments,
    fat_tree,
    htsim_protocol,
    last_flow_ns,
    permutation,
)

FILE = "uet-htsim-fct-receiver"


def test_flows_with_one_path_each_take_as_long_as_the_fullest_link() -> None:
    """Which flows collide is chance, and htsim's 515.24 us are those of three flows on one link."""
    graph, protocol = fat_tree(4), htsim_protocol(paths=1, adapt=0.0)
    times = [
        last_flow_ns(run(graph, permutation(16, MB2, seed), protocols=protocol, seed=seed)) / 1e3
        for seed in range(40)
    ]
    assert sum(time == pytest.approx(515.24, rel=0.01) for time in times) >= 10
    assert all(330 < time < 700 for time in times)


def test_each_experiment_but_that_one_is_a_case_with_its_connections() -> None:
    rows = [row for row in data.lines(FILE) if row["experiment"] != LEFT_OUT]
    cases = list(experiments(data.lines(FILE)))
    assert [case.label for case in cases] == [row["experiment"] for row in rows]
    for case, row in zip(cases, rows, strict=True):
        assert len(case.transfers) == int(row["connections"])


def test_an_unknown_matrix_is_refused() -> None:
    row = data.lines(FILE)[0] | {"arguments": "-tm connection_matrices/two.cm -end 1"}
    with pytest.raises(ModelError, match=r"two\.cm.*no known matrix"):
        list(experiments([row]))


LEFT_OUT = "Small permutation; single path."
