# SPDX-License-Identifier: BSD-3-Clause
"""Results of a sweep in a file, written in order, so that a killed sweep goes on where it was."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, get_args, get_type_hints

from nupa.model.errors import ModelError

if TYPE_CHECKING:
    from nupa.model.study.sweep import Configuration, SweepRow


def open_store(out: str, asked: Sequence[Configuration]) -> RowStore:
    """Returns the store of *out*, with the rows that it has; empty: rows are kept nowhere.

    ModelError: the file is of another sweep, cannot be written, or no module writes its kind.
    """
    suffix = Path(out).suffix if out else ""
    if suffix not in ("", ".csv", ".parquet"):
        raise ModelError(f"--out {out}: the name ends with .csv or .parquet")
    if out and not suffix:
        raise ModelError(f"--out {out}: the name ends with .csv or .parquet: add one")
    return RowStore(Path(out) if out else None, asked)


class RowStore:
    """Rows of a CSV file.  A Parquet file is made of one when it is complete: `x.parquet.csv`."""

    def __init__(self, out: Path | None, asked: Sequence[Configuration]) -> None:
        self.rows: list[SweepRow] = []
        self._out = out
        self._parquet = out is not None and out.suffix == ".parquet"
        self._file: IO[str] | None = None
        if out is None:
            return
        if self._parquet:
            _pyarrow()
            self._journal = out.with_name(f"{out.name}.csv")
            if out.exists() and not self._journal.exists():
                self.rows = _from_parquet(out)
                self._check(asked)
                if len(self.rows) == len(asked):
                    return
                raise ModelError(f"{out} has {len(self.rows)} rows: the sweep has {len(asked)}")
        else:
            self._journal = out
        try:
            self._open(asked)
        except OSError as error:
            raise ModelError(f"--out {self._journal}: {error.strerror}") from error

    def __enter__(self) -> RowStore:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def add(self, row: SweepRow) -> None:
        """Writes a row: whole lines reach the file, so that a killed process loses none."""
        if self._file:
            self._file.write(_line(row))
            self._file.flush()

    def finish(self) -> None:
        """Completes the file."""
        if self._file and self._parquet and self._out:
            self._file.close()
            self._file = None
            _to_parquet(_read(self._journal.read_text(encoding="utf-8"))[0], self._out)
            self._journal.unlink()

    def _open(self, asked: Sequence[Configuration]) -> None:
        text = self._journal.read_text(encoding="utf-8") if self._journal.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        # A head that was torn is no result yet.
        if text and not _line(_columns()).startswith(text):
            self.rows, head = _read(whole)
            if head != _columns():
                raise ModelError(
                    f"{self._journal} is no result of this version: choose another --out"
                )
            self._check(asked)
        if whole != text:
            # The last line was torn when the process was killed.
            self._journal.write_text(whole, encoding="utf-8", newline="")
        self._file = self._journal.open("a", encoding="utf-8", newline="")
        if not whole:
            self._file.write(_line(_columns()))
            self._file.flush()

    def _check(self, asked: Sequence[Configuration]) -> None:
        for at, row in enumerate(self.rows):
            if at >= len(asked) or row.asked != asked[at]:
                raise ModelError(
                    f"{self._out}: row {at + 1} is of another sweep ({row.work} on {row.on}): "
                    "remove the file, or choose another --out"
                )


def _line(values: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow("" if v is None else v for v in values)
    return text.getvalue()


def _columns() -> list[str]:
    from nupa.model.study.sweep import SweepRow

    return list(SweepRow._fields)


def _types() -> dict[str, tuple[type, bool]]:
    """Returns the type of each column, and whether it may be missing."""
    from nupa.model.study.sweep import SweepRow

    found = {}
    for name, hint in get_type_hints(SweepRow).items():
        kinds = get_args(hint) or (hint,)
        found[name] = (kinds[0], type(None) in kinds)
    return found


def _read(text: str) -> tuple[list[SweepRow], list[str]]:
    from nupa.model.study.sweep import SweepRow

    lines = csv.reader(io.StringIO(text, newline=""))
    head = next(lines, [])
    types = _types()
    if head != list(types):
        return [], head
    rows: list[SweepRow] = []
    for line in lines:
        try:
            values: list[Any] = [
                None if optional and not cell else kind(cell)
                for cell, (kind, optional) in zip(line, types.values(), strict=True)
            ]
        except ValueError:
            return rows, ["a line that is none"]
        rows.append(SweepRow(*values))
    return rows, head


# --- Parquet -------------------------------------------------------------------------------


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ModelError(
            f"a .parquet file needs pyarrow, which is not installed ({error}): "
            "`pip install nupa[sweep]`, or choose a .csv file"
        ) from error
    return pyarrow


def _to_parquet(rows: Sequence[SweepRow], out: Path) -> None:
    arrow = _pyarrow()
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, kinds[kind]) for name, (kind, _) in _types().items()])
    table = arrow.Table.from_pylist([row._asdict() for row in rows], schema=schema)
    partial = out.with_name(f"{out.name}.tmp")
    arrow.parquet.write_table(table, partial)
    partial.replace(out)


def _from_parquet(out: Path) -> list[SweepRow]:
    from nupa.model.study.sweep import SweepRow

    arrow = _pyarrow()
    try:
        table = arrow.parquet.read_table(out)
    except arrow.ArrowException as error:
        raise ModelError(f"{out} is no Parquet file: {error}") from error
    if table.column_names != _columns():
        raise ModelError(f"{out} is no result of this version: choose another --out")
    return [SweepRow(**row) for row in table.to_pylist()]
