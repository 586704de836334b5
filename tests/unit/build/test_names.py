# SPDX-License-Identifier: BSD-3-Clause
"""One word, one thing: a name stands for one class of nupa."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
TWICE = {
    "Field",  # of a packet: as layouts have it, and as filters do
    "GRH",  # of IBTA: pyverbs' class, and scapy's layer
    "Verdict",  # scapy's adds the texts of syndromes to core's
}


def test_a_class_has_a_name_of_its_own() -> None:
    found = defaultdict(list)
    for file in (ROOT / "nupa").rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in found.items() if len(files) > 1}.keys() == TWICE
