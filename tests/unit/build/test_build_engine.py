# SPDX-License-Identifier: BSD-3-Clause
"""The binding's builder takes from a header what stands between its marks, and refuses the rest."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

BUILDER = Path(__file__).parents[3] / "csrc" / "binding" / "build_engine.py"


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_engine", BUILDER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_what_stands_between_the_marks_is_taken(builder: ModuleType) -> None:
    text = (
        "#define A 1\n/* cffi: begin */\nint f(void);\n/* cffi: end */\n"
        "int hidden(void);\n/* cffi: begin */\nint g(void);\n/* cffi: end */\n#endif\n"
    )
    assert builder.marked(text, "x.h").split() == ["int", "f(void);", "int", "g(void);"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int f(void);\n", r"x\.h: has no"),
        ("/* cffi: begin */\nint f(void);\n", r"x\.h: the last .* has no"),
        ("int f(void);\n/* cffi: end */\n", r"x\.h:2: .cffi: end. without"),
        ("/* cffi: begin */\n\n/* cffi: begin */\n", r"x\.h:3: .cffi: begin. without"),
    ],
)
def test_marks_without_their_other_half_are_refused_by_line(
    builder: ModuleType, text: str, message: str
) -> None:
    with pytest.raises(builder.MarkError, match=message):
        builder.marked(text, "x.h")


def test_the_engines_headers_give_a_module_source(builder: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "_engine.c"
    assert builder.main(["build_engine.py", str(target)]) == 0
    source = target.read_text()
    assert '#include "engine/core/nupa.h"' in source
    assert "nupa_fabric_create" in source


def test_a_call_without_a_target_is_a_usage_error(
    builder: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert builder.main(["build_engine.py"]) == 2
    assert "usage: build_engine.py OUT.c" in capsys.readouterr().err
