# SPDX-License-Identifier: BSD-3-Clause
"""rdma-core's own tests pass, but for those whose reason stands in a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from .upstream import Outcome, Skip, Suite, read_skips, unexpected

#: How many generic tests there are, and how many have to pass at least, by version.
TESTS = {44: (170, 140), 59: (184, 154)}


@pytest.mark.timeout(240)
def test_the_suite_passes_but_for_the_tests_in_its_table(suite: Suite, tmp_path: Path) -> None:
    if suite.version not in TESTS:
        pytest.skip(f"the system has rdma-core v{suite.version}; there are tables for {[*TESTS]}")
    skips = read_skips(suite.version)
    outcomes = suite.run(tmp_path)
    found = unexpected(outcomes, skips)
    assert not found, "\n".join(found)
    generic = {outcome.id for outcome in outcomes if outcome.generic}
    passed = {outcome.id for outcome in outcomes if outcome.outcome == "ok"}
    there, enough = TESTS[suite.version]
    assert skips.keys() <= generic
    assert len(generic) == there
    assert len(generic & passed) >= enough


def test_a_skip_that_the_table_has_not_is_found() -> None:
    skips = {"tests.test_a.T.known": Skip("we know", "not supported")}

    def found(test: str, outcome: str, text: str) -> list[str]:
        return unexpected([Outcome(f"tests.{test}", outcome, text)], skips)

    assert found("test_a.T.known", "skipped", "it is not supported") == []
    assert found("test_a.T.known", "ok", "") == []
    assert found("test_mlx5_a.T.other", "skipped", "no such device") == []
    assert found("test_a.T.known", "skipped", "no device") != []
    assert found("test_a.T.new", "skipped", "it is not supported") != []
    assert found("test_a.T.known", "failed", "it is not supported") != []
    assert found("test_mlx5_a.T.other", "failed", "no such device") != []
