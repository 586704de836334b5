# SPDX-License-Identifier: BSD-3-Clause
"""Writes the public names of modules of pyverbs, and how they are called, as JSON.

    python names.py OUT MODULE ...

{module: {name: {...}}}; a module that cannot be imported is null.  Stands alone, as runner.py: it
is run by the interpreter of each pyverbs.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType


def parameters(function):
    """Returns [name, has a default] of each parameter but *args and **kwargs.

    None: the function does not tell.
    """
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [[p.name, p.default is not p.empty] for p in found if p.kind not in variable]


def public(names):
    return [name for name in names if not name.startswith("_") or name.startswith("_IBV")]


def describe_class(kind):
    members = {}
    for name in public(dir(kind)):
        static = inspect.getattr_static(kind, name)
        is_call = callable(static) or isinstance(static, (staticmethod, classmethod))
        members[name] = {
            "parameters": parameters(getattr(kind, name)) if is_call else None,
            "writable": getattr(static, "fset", None) is not None,
        }
    # Attributes that __init__ assigns are declared in the class.
    for base in kind.__mro__:
        for name in public(inspect.get_annotations(base)):
            members.setdefault(name, {"parameters": None, "writable": True})
    return {
        "members": members,
        "init": parameters(kind.__init__),
        "prints": kind.__str__ is not object.__str__,
    }


def describe(value):
    entry = {"home": getattr(value, "__module__", None)}
    if isinstance(value, type):
        return entry | describe_class(value)
    if callable(value):
        return entry | {"parameters": parameters(value)}
    return entry | {"home": None, "value": value if isinstance(value, int) else repr(value)}


def names_of(name):
    try:
        module = importlib.import_module(f"pyverbs.{name}")
    except ImportError:
        return None
    values = {each: getattr(module, each) for each in public(dir(module))}
    return {
        each: describe(value) for each, value in values.items() if not isinstance(value, ModuleType)
    }


def main() -> int:
    out, *modules = sys.argv[1:]
    Path(out).write_text(json.dumps({name: names_of(name) for name in modules}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
