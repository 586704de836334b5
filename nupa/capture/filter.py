# SPDX-License-Identifier: BSD-3-Clause
"""Compiles filters, such as `dqpn == 0x11 and opcode == RC_SEND_ONLY`, to code over columns.

An expression has the fields of nupa.capture.fields, numbers, names of values, strings, comparisons,
`in`, `and`, `or`, `not` and brackets.  Python's parser reads it; each node is checked against this
list and generated again.  No text of the expression is evaluated.
"""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from errno import EINVAL
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, NoReturn

from nupa.base.errors import LocalError
from nupa.capture.fields import FIELDS, Field, plain
from nupa.capture.view import View

EXPRESSION_CHARS_MAX = 4096
NESTED_MAX = 32
_COLUMN = re.compile(r"\b[hmnr]_[a-z_]+\b")
_ORDERED: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_EQUAL: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!="}
_MEMBER: dict[type[ast.cmpop], str] = {ast.In: "in", ast.NotIn: "not in"}
_OPERATORS = {**_ORDERED, **_EQUAL, **_MEMBER}
_GRAMMAR = (
    "a filter has fields (`nupa capture --fields` lists them), numbers, names of values, "
    '"strings", == != < <= > >= in, and, or, not and ( )'
)


class FilterError(LocalError):
    """The filter cannot be compiled; the message says which part, and what is near."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EINVAL)


class Filter:
    """A compiled filter.

    *names*: the known names of the fields `host` and `port`; comparing with another is an error.

    >>> Filter("psn > 5 or syndrome").text
    'psn > 5 or syndrome'
    """

    def __init__(self, text: str, names: Mapping[str, Iterable[str]] | None = None) -> None:
        self.text = text
        compiler = _Compiler(text, names or {})
        code = compiler.compile()
        self.columns = columns_in(code)
        self.checks_icrc = "h_icrc_state" in self.columns
        self._match = _function(code, self.columns, compiler.constants)

    def matches(self, view: View) -> list[int]:
        """Returns the places of the packets that match."""
        return self._match(*(view.column(name) for name in self.columns))


def columns_in(code: str) -> tuple[str, ...]:
    """Returns the columns of a View that an expression uses."""
    return tuple(dict.fromkeys(_COLUMN.findall(code)))


def _function(
    code: str, columns: tuple[str, ...], constants: Mapping[str, object]
) -> Callable[..., list[int]]:
    """Makes a function of these columns that returns the places at which *code* is true."""
    row, lists = ", ".join(columns), ", ".join(f"c_{name}" for name in columns)
    rows = f"zip({lists})" if len(columns) > 1 else lists
    loop = f"[i for i, {f'({row})' if len(columns) > 1 else row} in enumerate({rows}) if {code}]"
    space: dict[str, Any] = {"__builtins__": {"enumerate": enumerate, "zip": zip}, **constants}
    match: Callable[..., list[int]] = eval(f"lambda {lists}: {loop}", space)
    return match


class _Compiler:
    """Translates an expression to one over columns.  All of the result is generated here."""

    def __init__(self, text: str, names: Mapping[str, Iterable[str]]) -> None:
        self._text = text
        self._names = {field: set(known) for field, known in names.items()}
        self.constants: dict[str, object] = {}  #: by their names in the result

    def compile(self) -> str:
        text = self._text
        if len(text) > EXPRESSION_CHARS_MAX:
            raise FilterError(
                f"the filter has {len(text)} characters; at most {EXPRESSION_CHARS_MAX} are read"
            )
        if "\0" in text:  # SyntaxError or ValueError, by Python's version
            self._fail("it contains a null character")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of `5and 6`
                tree = ast.parse(text.replace("\n", " ").strip(), mode="eval")
            return self._truth(tree.body, 0)
        except SyntaxError as error:
            self._fail(_advice(text, error))
        except (RecursionError, MemoryError):
            self._fail(f"it is nested too deeply: {NESTED_MAX} levels are the limit")
        except ValueError as error:  # numbers of thousands of digits
            self._fail(str(error))

    def _fail(self, why: str) -> NoReturn:
        shown = self._text if len(self._text) <= 80 else self._text[:77] + "..."
        raise FilterError(f"the filter {shown!r}: {why}")

    def _truth(self, node: ast.expr, depth: int) -> str:
        if depth > NESTED_MAX:
            self._fail(f"it is nested too deeply: {NESTED_MAX} levels are the limit")
        if isinstance(node, ast.BoolOp):
            word = " and " if isinstance(node.op, ast.And) else " or "
            return f"({word.join(self._truth(value, depth + 1) for value in node.values)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"(not {self._truth(node.operand, depth + 1)})"
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            pairs = zip(operands, node.ops, operands[1:], strict=False)
            return f"({' and '.join(self._pair(*pair) for pair in pairs)})"
        if isinstance(node, ast.Name):
            field = self._field(node)
            if field.type in ("name", "address"):
                self._fail(f'compare {field.name} with something: {field.name} == "…"')
            return _when([field], f"({field.code})")
        return self._fail(f"`{ast.unparse(node)}` cannot be part of a filter: {_GRAMMAR}")

    def _pair(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
        if type(operator) in _MEMBER and isinstance(right, ast.Tuple | ast.List | ast.Set):
            field = self._field(left)
            values = ", ".join(self._value(value, field) for value in right.elts)
            sign = _MEMBER[type(operator)]
            return _when([field], f"({field.code}) {sign} ({values}{',' if values else ''})")
        sign = _OPERATORS.get(type(operator), "")
        if not sign or type(operator) in _MEMBER:
            self._fail(f"`{ast.unparse(right)}`: after `in` comes a list: opcode in (A, B)")
        ours, theirs = self._is_field(left, right), self._is_field(right, left)
        if not ours and not theirs:
            # The one that is not a value ought to be a field.
            self._field(right if isinstance(left, ast.Constant) else left)
        fields = [
            self._field(node) for node, is_field in ((left, ours), (right, theirs)) if is_field
        ]
        for field in fields:
            if field.type in ("name", "address") and type(operator) not in _EQUAL:
                self._fail(f"{field.name} {sign} …: {field.name} is a {field.type}: == or !=")
        types = {field.type for field in fields}
        if len(types) == 2 and types & {"name", "address"}:
            self._fail(f"{fields[0].name} and {fields[1].name} cannot be compared")
        texts = [
            f"({self._field(node).code})" if is_field else self._value(node, fields[0])
            for node, is_field in ((left, ours), (right, theirs))
        ]
        return _when(fields, f"{texts[0]} {sign} {texts[1]}")

    def _is_field(self, node: ast.expr, beside: ast.expr) -> bool:
        """Tells whether a name is a field's: values of the field *beside* it come first."""
        if not isinstance(node, ast.Name) or node.id not in FIELDS:
            return False
        other = FIELDS.get(beside.id) if isinstance(beside, ast.Name) else None
        if other is None:
            return True
        values = self._names.get(other.name, ()) if other.type == "name" else other.values
        return plain(node.id) not in map(plain, values)

    def _field(self, node: ast.expr) -> Field:
        if not isinstance(node, ast.Name):
            self._fail(f"`{ast.unparse(node)}` stands where a field belongs: {_GRAMMAR}")
        field = FIELDS.get(node.id)
        if field is None:
            near = _near(node.id, FIELDS)
            self._fail(f"there is no field `{node.id}`{near}; `nupa capture --fields` lists all")
        return field

    def _value(self, node: ast.expr, field: Field) -> str:
        """Returns the code of a constant that *field* is compared with."""
        value: object
        if isinstance(node, ast.Constant):
            value = node.value
        elif isinstance(node, ast.Name):
            value = node.id
        else:
            self._fail(
                f"`{ast.unparse(node)}` is not a number or a name; quote names that have other "
                f'characters than letters, digits and _: {field.name} == "…"'
            )
        if field.type == "name":
            return self._constant(self._named(value, field))
        if field.type == "address":
            return self._constant(self._address(value, field))
        if isinstance(value, str):
            return str(self._by_name(value, field))
        if type(value) is not int:
            self._fail(f"{field.name} is compared with {value!r}: take a whole number or a name")
        return str(value)

    def _constant(self, value: object) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def _named(self, value: object, field: Field) -> str:
        if not isinstance(value, str):
            self._fail(f'{field.name} is compared with {value!r}: take a name, {field.name} == "…"')
        known = self._names.get(field.name)
        if known is not None and value not in known:
            self._fail(f"there is no {field.name} {value!r}{_near(value, known)}")
        return value

    def _by_name(self, name: str, field: Field) -> int:
        values = {plain(known): number for known, number in field.values.items()}
        number = values.get(plain(name))
        if number is None:
            if not field.values:
                self._fail(f"{field.name} is compared with {name!r}: it is a number")
            near = _near(plain(name), values, field.values)
            self._fail(f"{field.name} is never {name!r}{near}")
        return number

    def _address(self, value: object, field: Field) -> bytes:
        try:
            address = ip_address(value if isinstance(value, str) else "")
        except ValueError:
            self._fail(f'{field.name} is an address: {field.name} == "10.0.0.1"')
        if isinstance(address, IPv4Address):
            address = IPv6Address(f"::ffff:{address}")
        return address.packed


def _when(fields: list[Field], code: str) -> str:
    """Restricts *code* to packets that have these fields."""
    conditions = [f"({field.when})" for field in fields if field.when]
    return f"({' and '.join([*conditions, code])})"


def _near(name: str, known: Iterable[str], shown: Iterable[str] | None = None) -> str:
    """Suggests names that may have been meant."""
    originals = dict(zip(known, shown if shown is not None else known, strict=True))
    near = difflib.get_close_matches(name, list(originals), n=3, cutoff=0.5)
    near += [k for k in originals if name.lower() in k.lower() and k not in near][:3]
    if not near and len(originals) <= 12:
        return f": there are {', '.join(sorted(originals.values()))}"
    return f": near are {', '.join(originals[k] for k in near)}" if near else ""


def _advice(text: str, error: SyntaxError) -> str:
    if re.search(r"[^=!<>]=[^=]", text):
        return "compare with ==, not ="
    if "&&" in text or "||" in text or re.search(r"!(?!=)", text):
        return "write `and`, `or`, `not`"
    if re.search(r"\d+\.\d+\.\d+|[0-9a-f]*::", text):
        return 'quote addresses: source == "10.0.0.1"'
    if not text.strip():
        return "it is empty"
    place = f" at character {error.offset}" if error.offset else ""
    return f"it ends or goes on where it should not{place}: {_GRAMMAR}"
