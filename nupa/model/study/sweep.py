# SPDX-License-Identifier: BSD-3-Clause
"""Sweeps: all combinations of works, fabrics, ranks, algorithms, engines and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from nupa.model.errors import ModelError
from nupa.model.study.question import predict
from nupa.model.study.runners import solve_all
from nupa.model.study.store import open_store
from nupa.model.work.text import expand, parse, read_table

CONFIGURATIONS_MAX = 1_000_000


class Configuration(NamedTuple):
    """One question; *algorithm* empty: the library chooses; *ranks* 0: all endpoints."""

    work: str
    on: str
    ranks: int = 0
    algorithm: str = ""
    engine: str = "auto"
    seed: int = 1
    figures: str = ""


class SweepRow(NamedTuple):
    """A line of the result: what was asked, and the answer, or the error.

    Times are in ns, rates in bytes a second, energy in pJ.  *stage* is the largest one.
    """

    work: str
    on: str
    ranks: int
    asked_algorithm: str
    asked_engine: str
    seed: int
    asked_figures: str
    time_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    algbw_bytes_per_s: float | None = None
    busbw_bytes_per_s: float | None = None
    energy_pj: float | None = None
    algorithm: str = ""
    engine: str = ""
    stage: str = ""
    stage_share: float | None = None
    warnings: str = ""
    error: str = ""

    @property
    def asked(self) -> Configuration:
        return Configuration(
            self.work, self.on, self.ranks, self.asked_algorithm, self.asked_engine, self.seed,
            self.asked_figures,
        )  # fmt: skip


def solve(one: Configuration) -> SweepRow:
    """Returns the row of a configuration; a wrong one has an error."""
    try:
        answer = predict(
            one.work, one.on, one.ranks,
            algorithm=one.algorithm, engine=one.engine, seed=one.seed, figures=one.figures,
        )  # fmt: skip
    except ModelError as error:
        return SweepRow(*one, error=" ".join(str(error).split()))
    stage, share = next(iter(answer.shares().items()))
    return SweepRow(
        *one,
        time_ns=answer.time_ns,
        low_ns=answer.low_ns,
        high_ns=answer.high_ns,
        algbw_bytes_per_s=answer.algbw_bytes_per_s,
        busbw_bytes_per_s=answer.busbw_bytes_per_s,
        energy_pj=answer.energy_pj,
        algorithm=answer.algorithm,
        engine=answer.engine,
        stage=stage,
        stage_share=share,
        warnings="; ".join(answer.warnings),
    )


def configurations(
    work: Iterable[str],
    on: Iterable[str],
    ranks: Iterable[int] = (0,),
    algorithm: Iterable[str] = ("",),
    engine: Iterable[str] = ("auto",),
    seed: Iterable[int] = (1,),
    figures: Iterable[str] = ("",),
) -> list[Configuration]:
    """Returns all combinations, the last list varying fastest; a range of sizes is many works.

    ModelError: a work that there is not, or more than CONFIGURATIONS_MAX.
    """
    works: list[str] = []
    for each in work:
        sizes = expand(each)
        parse(sizes[0])
        works += sizes
    lists: tuple[list[Any], ...] = (
        works,
        list(on),
        list(ranks),
        list(algorithm),
        list(engine),
        list(seed),
        list(figures),
    )
    count = prod(map(len, lists))
    if not 1 <= count <= CONFIGURATIONS_MAX:
        raise ModelError(
            f"a sweep of {count} configurations: give 1 to {CONFIGURATIONS_MAX}, and no empty list"
        )
    return [Configuration(*each) for each in product(*lists)]


def sweep(
    asked: Sequence[Configuration] | Mapping[str, Any] | str,
    out: str = "",
    *,
    scheduler: str = "",
    jobs: int = 0,
    step: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[SweepRow]:
    """Returns a row for each configuration, in their order.

    *asked*: configurations, a table of lists (`{"work": [...], "on": [...]}`), or the name of a
    TOML file of that.  *out*: a .csv or .parquet file; rows that it has from a sweep of the same
    that was killed are not computed again.  *scheduler*: the address of a Dask scheduler; otherwise
    *jobs* processes of this machine work, by Dask if it is installed.  *step* is called with how
    many are done.  ModelError: a wrong table or file, or no scheduler there.
    """
    if isinstance(asked, str):
        asked = read_table(asked) | {"": asked}
    found = from_table(asked) if isinstance(asked, Mapping) else list(asked)
    rows: list[SweepRow] = []
    with open_store(out, found) as store:
        rows += store.rows
        step(len(rows), len(found))
        for row in solve_all(solve, found[len(rows) :], jobs=jobs, scheduler=scheduler):
            store.add(row)
            rows.append(row)
            step(len(rows), len(found))
        store.finish()
    return rows


_KINDS: Mapping[str, type] = {
    "work": str,
    "on": str,
    "ranks": int,
    "algorithm": str,
    "engine": str,
    "seed": int,
    "figures": str,
}


def from_table(table: Mapping[str, Any]) -> list[Configuration]:
    """Returns the configurations of lists, or single values, by the names of _KINDS.

    ModelError: an unknown or missing name, or a value of another type.
    """
    name = table.get("", "the sweep")
    found: dict[str, list[Any]] = {}
    for key, value in table.items():
        if not key:
            continue
        if key not in _KINDS:
            raise ModelError(f"{name}: {key!r} is unknown: give {', '.join(_KINDS)}")
        values = list(value) if isinstance(value, list | tuple) else [value]
        kind = _KINDS[key]
        wrong = [each for each in values if not isinstance(each, kind) or isinstance(each, bool)]
        if wrong:
            what = "texts" if kind is str else "whole numbers"
            raise ModelError(f"{name}: {key} has {wrong[0]!r}: give {what}")
        found[key] = values
    missing = [key for key in ("work", "on") if key not in found]
    if missing:
        raise ModelError(f'{name}: no {missing[0]}: give a list, as {missing[0]} = ["…"]')
    return configurations(**found)
