# SPDX-License-Identifier: BSD-3-Clause
"""Comparisons: one work on several fabrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nupa.model.answer.answer import Answer
from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.study.question import predict, work_of
from nupa.model.work.phase import Work


@dataclass(frozen=True)
class Comparison:
    """Answers by the fabric's text, in the order that was asked; *errors* are of the others."""

    work: str
    answers: Mapping[str, Answer]
    errors: Mapping[str, str]

    @property
    def best_ns(self) -> float:
        return min(each.time_ns for each in self.answers.values())

    def shown(self) -> dict[str, Any]:
        """Returns it as `nupa model compare --json` prints it."""
        return {
            "work": self.work,
            "answers": {name: answer.shown() for name, answer in self.answers.items()},
            "errors": dict(self.errors),
        }


def compare(
    work: Work | str,
    fabrics: Iterable[Network | str],
    ranks: int = 0,
    *,
    algorithm: str = "",
    library: str = "",
    engine: str = "auto",
    check: bool = False,
    seed: int = 1,
    step: Callable[[str], None] = lambda _name: None,
) -> Comparison:
    """Returns what *work* takes on each of *fabrics*; *step* is called before each.

    A fabric on which the work is impossible has an error.  ModelError: the work itself is wrong,
    or no fabric can do it.
    """
    found = work_of(work, algorithm, library)
    answers: dict[str, Answer] = {}
    errors: dict[str, str] = {}
    for fabric in fabrics:
        name = fabric if isinstance(fabric, str) else fabric.name
        step(name)
        try:
            answers[name] = predict(found, fabric, ranks, engine=engine, check=check, seed=seed)
        except ModelError as error:
            errors[name] = str(error)
    if not answers:
        reasons = "; ".join(f"{name}: {error}" for name, error in errors.items())
        raise ModelError(f"{found.name} is possible on none of the fabrics: {reasons or 'none'}")
    return Comparison(found.name, answers, errors)
