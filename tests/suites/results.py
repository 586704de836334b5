# SPDX-License-Identifier: BSD-3-Clause
"""Evaluates expressions over pyverbs and writes what came of each, as JSON: {expression: result}.

    python results.py OUT EXPRESSIONS

EXPRESSIONS: a TOML file, see results.toml.  Stands alone, as runner.py.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
import tomllib
from pathlib import Path

_NUMBERS = re.compile(r"0x[0-9a-f]+ *|\b\d+ *")


class Names(dict):
    """Names of an expression: first those it assigned, then modules of pyverbs."""

    def __missing__(self, name):
        try:
            return importlib.import_module(f"pyverbs.{name}")
        except ImportError:
            raise KeyError(name) from None


def evaluate(text):
    """Runs all statements of *text*; the text of the last, an expression, is the result."""
    *before, last = ast.parse(text).body
    names = Names()
    try:
        exec(compile(ast.Module(before, []), text, "exec"), names)
        value = eval(compile(ast.Expression(last.value), text, "eval"), names)
        return str(int(value)) if isinstance(value, int) else str(value)
    except Exception as error:
        return f"{type(error).__name__} {getattr(error, 'error_code', '')}"


def main() -> int:
    out, expressions = sys.argv[1:]
    groups = tomllib.loads(Path(expressions).read_text())
    found = {text: evaluate(text) for text in groups["same"]}
    # Numbers differ from run to run: handles, keys, addresses.
    found |= {text: _NUMBERS.sub("N", evaluate(text)) for text in groups["alike"]}
    Path(out).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
