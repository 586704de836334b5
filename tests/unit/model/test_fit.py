# SPDX-License-Identifier: BSD-3-Clause
"""Fitted figures: the values that profiles have are those that their files give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nupa.model.profile.profile import load, names
from nupa.model.validate.fit import fit, main

#: A person rounds the fitted values, and may prefer a published one.
ROUNDING = 0.008

#: NVLink's figures of reduction are fitted together with the library's tables.
FITTED = [
    name
    for name in names("fabric")
    if any(figure.fitted for figure in load(name).figures.values()) and "nvlink" not in name
]


@pytest.mark.parametrize("name", FITTED)
def test_a_profile_has_the_values_of_its_fit(name: str) -> None:
    found = fit(load(name))
    assert found.after <= found.before <= found.after + ROUNDING


def test_a_fit_finds_values_from_wrong_ones() -> None:
    profile = load("ib-edr")
    rate = profile.figures["message_rate"]
    wrong = replace(
        profile, figures={**profile.figures, "message_rate": rate._replace(value=rate.value * 1.4)}
    )
    found = fit(wrong)
    assert found.before > 0.1
    assert found.after < 0.01
    assert found.values["message_rate"] == pytest.approx(rate.value, rel=0.01)


def test_the_script_prints_shipped_and_fitted_values(capsys: pytest.CaptureFixture[str]) -> None:
    main(["ib-edr"])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("ib-edr: error 0.")
    assert {line.split()[0] for line in lines} == {"efficiency", "message_rate", "single_rate"}
