# SPDX-License-Identifier: BSD-3-Clause
"""`predict`, `compare` and `why`: the questions of the command line and of Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nupa.model
from nupa.cli import main
from nupa.model.errors import ModelError
from nupa.model.profile.profile import names
from nupa.model.study.compare import compare
from nupa.model.study.difference import difference
from nupa.model.study.question import fabrics, network_of, predict, work_of

ISSUE = "nvlink4,ualink-200g,ib-ndr,roce-400,cxl-gen6x4,nupa-448"
FABRICS = st.sampled_from(names("fabric"))


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    code = main(["model", *argv])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def test_the_python_names_are_those_of_the_study() -> None:
    assert nupa.model.predict is predict
    assert nupa.model.compare is compare
    assert nupa.model.difference is difference
    with pytest.raises(AttributeError, match="no attribute 'foresee'"):
        nupa.model.foresee  # noqa: B018


def test_texts_and_objects_are_the_same_question() -> None:
    assert predict("allreduce:1M", "ib-ndr", 8) == predict(
        work_of("allreduce:1M"), network_of("ib-ndr", 8)
    )


def test_ranks_are_the_first_endpoints_of_a_generator() -> None:
    assert predict("allreduce:1M", "rail(64,nvlink4,ib-ndr)", 16).ranks == 16
    with pytest.raises(ModelError, match="64 endpoints: 128 ranks were asked"):
        predict("allreduce:1M", "rail(64,nvlink4,ib-ndr)", 128)


def test_an_algorithm_overrides_or_is_refused() -> None:
    assert predict("allreduce:1M", "ib-ndr", 8, algorithm="tree").algorithm.startswith("tree")
    with pytest.raises(ModelError, match="write:8 has no algorithm to choose: ring was asked"):
        predict("write:8", "ib-ndr", algorithm="ring")


def test_the_table_of_the_issue_has_a_line_for_each_fabric(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = printed(capsys, "compare", "--work", "allreduce:1G", "--ranks", "8", "--on", ISSUE)
    title, head, *lines = out.splitlines()
    assert title == "all-reduce:1073741824"
    assert head.split()[:3] == ["FABRIC", "RANKS", "TIME"]
    assert [line.split()[0] for line in lines[:6]] == ISSUE.split(",")
    assert all(line.split()[1] == "8" for line in lines[:6])
    assert "  1 x " in lines[1]  # 18 stations of UALink have four times the rate of NVLink 4


def test_a_fabric_that_cannot_has_its_reason_below(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "compare", "--work", "load:64", "--on", "cxl-gen6x4,ib-ndr")
    assert "ib-ndr: impossible: ib-ndr has no loads and stores" in out


def test_a_comparison_without_an_answer_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "compare", "--work", "load:64", "--on", "ib-ndr,roce-400"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "load:64 is possible on none of the fabrics: ib-ndr: " in err


@pytest.mark.parametrize(("text", "count"), [("a,b", 2), ("fat_tree(64,roce-400),a", 2), ("a", 1)])
def test_commas_in_brackets_do_not_separate_fabrics(text: str, count: int) -> None:
    assert len(fabrics(text)) == count


@pytest.mark.parametrize("text", ["", "a,", "fat_tree(64"])
def test_a_list_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(ModelError):
        fabrics(text)


@settings(deadline=None)
@given(FABRICS, FABRICS, st.sampled_from(["write:8", "read:64K", "send:1M"]))
def test_the_differences_of_stages_add_up(a: str, b: str, work: str) -> None:
    try:
        found = difference(work, a, b)
    except ModelError:
        return
    assert sum(row.more_ns for row in found.stages) == pytest.approx(
        found.b.time_ns - found.a.time_ns, abs=1e-6
    )
    biggest = [abs(row.more_ns) for row in found.stages]
    assert biggest == sorted(biggest, reverse=True)
    assert a != b or not found.figures


def test_a_figure_explains_what_it_is_worth() -> None:
    found = difference("write:8", "cxl-gen6x4", "ib-ndr")
    effects = {row.name: row for row in found.figures}
    stages = {row.name: row for row in found.stages}
    assert effects["hop"].effect_ns == pytest.approx(stages["switches"].more_ns)
    assert effects["completion"].effect_ns == pytest.approx(stages["completion"].more_ns)
    assert effects["hop"].meaning == "one switch"


def test_effects_of_figures_beside_packets_are_those_of_the_closed_form() -> None:
    found, closed = (
        {row.name: row.effect_ns for row in difference(*pair, engine=engine).figures}
        for pair in [("write:64K", "ib-hdr", "ib-ndr")]
        for engine in ("packets", "stages")
    )
    assert found == pytest.approx(closed)


def test_networks_of_other_shapes_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "why", "fat_tree(64,ib-ndr)", "fat_tree(128,ib-ndr)", "--work", "write:8")
    assert "has the levels" in out


def test_why_prints_stages_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "why", "cxl-gen6x4", "ib-ndr", "--work", "write:64")
    assert out.startswith("write:64, 2 ranks: ")
    assert out.splitlines()[2].split() == ["STAGE", "cxl-gen6x4", "ib-ndr", "DIFFERENCE", "MEANING"]
    assert "FIGURE" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--work", "write:0", "--on", "ib-hdr"], "sizes are 1 B or more"),
        (["--work", "write:8", "--on", "ib-hd"], "is 'ib-hdr' meant"),
        (["--work", "allreduce:1M", "--on", "nvlink4", "--ranks", "5000"], "5000"),
        (["--work", "write:8", "--on", "ib-hdr", "--algorithm", "ring"], "no algorithm to choose"),
        (["--work", "write:8", "--on", "ib-hdr", "--plot", "x.txt"], "ends with one of .svg"),
        (["--work", "@/none.toml", "--on", "ib-hdr"], "/none.toml: No such file"),
    ],
)
def test_a_wrong_question_is_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "predict", *argv]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


@pytest.mark.parametrize(
    "argv",
    [
        ["predict", "--work", "allreduce:1M..1G", "--on", "nvlink4", "--ranks", "8"],
        ["predict", "--work", "write:8", "--on", "ib-hdr"],
        ["compare", "--work", "allreduce:1M..4M", "--on", "ib-ndr", "--ranks", "8"],
    ],
)
def test_a_plot_is_an_svg_and_the_same_each_time(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    if argv[0] == "compare":
        argv = [*argv[:2], "allreduce:1M", *argv[3:4], "ib-ndr,roce-400", *argv[5:]]
    files = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for file in files:
        printed(capsys, *argv, "--plot", str(file))
    first, second = (file.read_text() for file in files)
    assert first == second
    assert "<svg" in first


def test_a_plot_without_matplotlib_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["model", "predict", "--work", "write:8", "--on", "ib-hdr", "--plot", "x.svg"]) == 1
    err = capsys.readouterr().err
    assert "pip install nupa[plot]" in err
    assert err.count("\n") == 1


def test_help_imports_none_of_the_model() -> None:
    program = (
        "import sys; from nupa.cli import build_parser; build_parser([]);"
        "print([m for m in sys.modules if m.startswith('nupa.model') or m in "
        "('json', 'csv', 'tomllib', 'matplotlib', 'dask', 'jsonschema', 'numpy')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=Path(nupa.model.__file__).parents[2],
        check=True,
    )
    assert found.stdout.strip() == "[]"


def test_a_warning_of_several_profiles_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "compare", "--work", "write:8", "--on", "roce-400,cxl-gen5x4,ib-hdr")
    (line,) = [line for line in out.splitlines() if "no curve was measured" in line]
    assert line.startswith("warning: roce-400, cxl-gen5x4: ")
