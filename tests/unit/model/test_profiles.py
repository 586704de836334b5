# SPDX-License-Identifier: BSD-3-Clause
"""Profiles: those that come with NUPA are valid; each error of a file is named in one line."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.model.engine.predict import predict
from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.figure import UNITS
from nupa.model.profile.kinds import KINDS
from nupa.model.profile.profile import FILE_BYTES_MAX, is_base, load, names, parse
from nupa.model.validate import data
from nupa.model.validate.case import pair
from nupa.model.work.perftest import Perftest

FOLDER = Path(__file__).parents[3] / "nupa" / "model" / "profiles"
FILES = sorted(FOLDER.rglob("*.toml"))
FIGURE = """
name = "mine"
title = "a test"
kind = "fabric"
[figures.rate]
value = 100
unit = "Gb/s"
source = "a test"
confidence = "assumed"
"""

#: The profiles that issue 15 names.
ASKED = """
cxl-gen5x4 cxl-gen6x4 cxl-gen6x4-pcie nupa-448 nupa-448-a clussys-fpga xconn-a xconn-b
ib-edr ib-hdr ib-ndr ib-xdr ib-cx3 roce-10g roce-25 roce-100 roce-200 roce-400 roce-800 uec-800
slingshot-11 tcp-100g nvlink1 nvlink2 nvlink3 nvlink4 nvlink5 xgmi-mi300x ualink-200g
ualink-common-2.0 hpn upn here dac aec fro lro lpo npo cpo
"""


def with_change(old: str, new: str) -> bytes:
    assert old in FIGURE
    return FIGURE.replace(old, new).encode()


def test_every_profile_that_was_asked_for_is_there() -> None:
    assert set(ASKED.split()) <= set(names())
    assert not any(is_base(name) for name in names())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_profile_is_valid_and_has_its_files_name(path: Path) -> None:
    profile = load(path.stem)
    assert profile.name == path.stem
    assert load(str(path)).figures == profile.figures
    for figure in profile.figures.values():
        assert figure.low <= figure.value <= figure.high
        for file in figure.fitted:
            assert file.removesuffix(".csv") in data.names()


@pytest.mark.parametrize("name", names("fabric"))
def test_every_fabric_has_a_rate_and_a_title_of_its_own(name: str) -> None:
    profile = load(name)
    assert profile["rate"] > 0
    assert [load(other).title for other in names()].count(profile.title) == 1


@pytest.mark.parametrize("name", names("medium"))
def test_every_medium_has_what_a_path_and_its_power_need(name: str) -> None:
    assert set(load(name).figures) == {
        "propagation", "conversion", "reach", "energy", "price", "year",
    }  # fmt: skip


def test_a_fitted_figure_is_measured_or_a_claim() -> None:
    for name in names():
        for figure in load(name).figures.values():
            assert not figure.fitted or figure.confidence in {"measured", "vendor"}


def test_a_case_is_better_or_worse_by_the_direction_of_each_figure() -> None:
    for name in names("fabric"):
        profile = load(name)
        for figure, kind in KINDS.items():
            best, value, worst = (
                profile.at(case).get(figure) for case in ("best", "nominal", "worst")
            )
            assert (best - value) * kind.better >= 0 >= (worst - value) * kind.better


def test_a_derived_profile_has_its_bases_figures_and_its_own() -> None:
    ndr, hdr = load("ib-ndr"), load("ib-hdr")
    assert ndr["rate"] == 2 * hdr["rate"]
    assert ndr.figures["fetch"] == hdr.figures["fetch"]
    assert ndr.envelope != hdr.envelope


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("figures.rate", "figures.ratee", "mine.toml: figures: 'ratee' is unknown: is 'rate'"),
        ('"Gb/s"', '"Gbps"', "mine.toml: rate: the unit is 'Gbps': give one of B/s, MB/s"),
        ("value = 100", "value = 100\nlow = 101", "rate: low is 101, value 100, high 100"),
        ("value = 100", "value = 100\nhigh = 99", "rate: low is 100, value 100, high 99"),
        ("value = 100", "value = nan", "rate: low is nan"),
        ("value = 100", "value = inf", "rate: low is inf"),
        ("value = 100", "value = 1" + "0" * 400, "rate: low is inf"),
        ("value = 100", "value = 1" + "0" * 5000, "mine.toml: not TOML"),
        ("value = 100", "value = 2026-01-01", "figures.rate.value: "),
        ("value = 100", "value = -1", "figures.rate.value: -1 is less than the minimum of 0"),
        ("value = 100", "value = 0", "rate: 0 was given: give a number above 0"),
        ("value = 100", "value = true", "figures.rate.value: True is not of type 'number'"),
        ("value = 100", 'value = "100"', "figures.rate.value: '100' is not of type 'number'"),
        ("value = 100\n", "", "figures.rate: 'value' is a required property"),
        ('source = "a test"\n', "", "figures.rate: 'source' is a required property"),
        ('source = "a test"\n', 'source = ""\n', "figures.rate.source: '' should be non-empty"),
        ('"assumed"', '"guessed"', "figures.rate.confidence: 'guessed' is unknown"),
        ('"fabric"', '"fabrik"', "kind: 'fabrik' is unknown: is 'fabric' meant?"),
        ('name = "mine"', 'name = "Mine"', "name: 'Mine' does not match"),
        ("value = 100", "value = 100\nvalues = 1", "'values' was unexpected"),
        ("value = 100", "value =", "mine.toml: not TOML: Invalid value (at line 6"),
        ("value = 100", "value = " + "[" * 100_000, "mine.toml: not TOML"),
        ('kind = "fabric"', 'kind = "fabric"\nbase = "ib-hd"', "'ib-hd': is 'ib-hdr' meant?"),
        ('kind = "fabric"', 'kind = "fabric"\nbase = "gone.toml"', "gone.toml: No such file"),
    ],
)
def test_an_invalid_file_is_refused_with_its_place_and_a_remedy(
    old: str, new: str, message: str
) -> None:
    with pytest.raises(ModelError) as found:
        parse(with_change(old, new), "mine.toml")
    assert message in str(found.value)
    assert len(str(found.value).splitlines()) == 1


@given(st.integers(0, len(FIGURE)), st.integers(0, 30), st.binary(max_size=30))
def test_a_damaged_file_is_a_profile_or_one_line(at: int, cut: int, put: bytes) -> None:
    text = FIGURE.encode()
    with contextlib.suppress(ModelError):
        assert parse(text[:at] + put + text[at + cut :], "mine.toml").figures is not None


def test_a_share_above_one_is_refused() -> None:
    more = with_change("figures.rate", "figures.efficiency").replace(b"Gb/s", b"1")
    with pytest.raises(ModelError, match=r"efficiency: 100 was given: 1 is the most"):
        parse(more, "mine.toml")


def test_text_that_is_not_utf_8_is_refused_with_its_line() -> None:
    with pytest.raises(ModelError, match=r"^mine\.toml:3: not UTF-8"):
        parse(FIGURE.encode().replace(b"a test", b"\xff", 1), "mine.toml")


def test_a_file_one_byte_too_long_is_refused_and_a_full_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    text = FIGURE.encode()
    path.write_bytes(text + b"#" * (FILE_BYTES_MAX - len(text)))
    assert load(str(path)).name == "mine"
    longer = tmp_path / "longer.toml"
    longer.write_bytes(path.read_bytes() + b"#")
    with pytest.raises(ModelError, match=f"longer than {FILE_BYTES_MAX} bytes"):
        load(str(longer))


def test_bases_may_not_be_a_circle(tmp_path: Path) -> None:
    for name, base in (("a", "b"), ("b", "a"), ("self", "../" + tmp_path.name + "/self")):
        (tmp_path / f"{name}.toml").write_text(
            FIGURE.replace('"fabric"', f'"fabric"\nbase = "{base}.toml"')
        )
    with pytest.raises(ModelError, match=r"bases are a circle: .*a\.toml -> .*b\.toml -> .*a\.tom"):
        load(str(tmp_path / "a.toml"))
    with pytest.raises(ModelError, match="bases are a circle"):
        load(str(tmp_path / "self.toml"))


def test_a_base_is_found_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(FIGURE)
    derived = FIGURE.replace("rate", "hop").replace("Gb/s", "ns")
    path = tmp_path / "derived.toml"
    path.write_text(derived.replace('"fabric"', '"fabric"\nbase = "base.toml"'))
    assert set(load(str(path)).figures) == {"rate", "hop"}


def test_an_unknown_profile_is_refused_with_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"no profile 'ib-hdd': is 'ib-hdr' meant\?"):
        load("ib-hdd")
    with pytest.raises(ModelError, match=r"no profile 'zzz': `nupa model profiles` lists them"):
        load("zzz")


def test_a_figure_that_a_profile_lacks_is_named_with_its_meaning() -> None:
    with pytest.raises(ModelError, match=r"dac has no figure 'rate': bytes on the wire"):
        load("dac")["rate"]


def test_every_unit_of_a_dimension_converts_to_its_first() -> None:
    for kind in KINDS.values():
        scales = UNITS[kind.dimension]
        assert next(iter(scales.values())) == 1.0
    found = parse(with_change('value = 100\nunit = "Gb/s"', 'value = 12.5\nunit = "GB/s"'), "x")
    assert found["rate"] == 12.5e9
    assert found.shown()["figures"]["rate"]["value"] == 12.5


def test_sources_cite_no_path_of_a_machine() -> None:
    for path in FILES:
        assert not re.search(r"/(home|work|root|tmp)/", path.read_text())


def test_both_readings_of_448_are_there_and_the_default_says_which() -> None:
    a, b = load("nupa-448-a"), load("nupa-448")
    assert a["rate"] == 2 * b["rate"]
    assert "reading b" in b.title.lower()
    assert Network("x", (NetworkLevel("pair", 2, b),)).endpoints == 2


@pytest.mark.parametrize(
    ("name", "size", "warning"),
    [
        ("ib-hdr", 8, ""),
        ("ib-hdr", 1, "1 B is outside of what was measured: 2 B to 8 MiB"),
        ("ib-edr", 8, "write was not measured: only send"),
        ("roce-200", 8, "no curve was measured"),
    ],
)
def test_an_answer_outside_the_envelope_has_a_warning(name: str, size: int, warning: str) -> None:
    found = predict(Perftest("write", size), pair(name)).warnings
    assert [warning in each for each in found] == ([True] if warning else [])
