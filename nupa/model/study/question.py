# SPDX-License-Identifier: BSD-3-Clause
"""Questions by name: texts or objects of works and networks, made one and predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any, cast

from nupa.model.answer.answer import Answer
from nupa.model.engine.choice import Engine, Tick
from nupa.model.engine.predict import predict as predict_one
from nupa.model.errors import ModelError
from nupa.model.network import text as networks
from nupa.model.network.network import Network
from nupa.model.study.figures import with_figures
from nupa.model.work import text as works
from nupa.model.work.phase import Work


def network_of(fabric: Network | str, ranks: int = 0) -> Network:
    """Returns the network of that name, or the part of it that *ranks* use; 0: all of it.

    A profile that is named alone has as many endpoints as ranks, or two.  ModelError: no such name,
    or too few endpoints.
    """
    if ranks < 0:
        raise ModelError(f"{ranks} ranks were asked: give a number from 1 up")
    found = networks.parse(fabric, ranks) if isinstance(fabric, str) else fabric
    return found.first(ranks) if ranks else found


def work_of(work: Work | str, algorithm: str = "", library: str = "") -> Work:
    """Returns the work of that text, with the algorithm and the library, if they are asked for.

    ModelError: no such work, or it has no algorithm to choose.
    """
    one = works.parse(work, _default(library)) if isinstance(work, str) else work
    return with_choice(one, algorithm, library)


def works_of(work: str, algorithm: str = "", library: str = "") -> tuple[Work, ...]:
    """Returns the works of a text, one for each size of a range.  ModelError as `work_of`."""
    found = works.parse_all(work, _default(library))
    return tuple(with_choice(each, algorithm, library) for each in found)


def _default(library: str) -> dict[str, str]:
    return {"library": library} if library else {}


def with_choice(work: Work, algorithm: str, library: str) -> Work:
    """Returns the work with that algorithm and library; empty: unchanged."""
    asked = {"algorithm": algorithm, "library": library}
    given = {name: value for name, value in asked.items() if value}
    one: Any = work
    for name, value in given.items():
        if not is_dataclass(one) or not hasattr(one, name):
            raise ModelError(f"{work.name} has no {name} to choose: {value} was asked")
    return cast(Work, replace(cast(Any, one), **given)) if given else work


def predict(
    work: Work | str,
    fabric: Network | str,
    ranks: int = 0,
    *,
    algorithm: str = "",
    library: str = "",
    engine: str = "auto",
    check: bool = False,
    seed: int = 1,
    spans: bool = False,
    tick: Tick | None = None,
    figures: str = "",
) -> Answer:
    """Returns how long *work* takes on *fabric*, and why.

    Both are texts, as on the command line, or objects.  *ranks*: the first endpoints that take
    part; 0: all.  *figures* replaces figures of profiles: "ib-ndr.hop=90ns;ib-ndr.rate=800Gb/s".
    The rest is nupa.model.engine.predict's.  ModelError: an impossible question.

    >>> round(predict("write:8", "clussys-fpga").time_ns)
    1720
    """
    return predict_one(
        work_of(work, algorithm, library),
        with_figures(network_of(fabric, ranks), figures),
        cast(Engine, engine),
        check=check,
        seed=seed,
        spans=spans,
        tick=tick,
    )


def fabrics(text: str) -> Sequence[str]:
    """Returns the fabrics of `--on A,B`.  ModelError: brackets that do not match, or no name."""
    found = networks.split(text)
    if not all(found):
        raise ModelError(f"--on {text!r}: name fabrics with commas between them")
    return found
