"""The reader of human norms: it accepts the usual shapes of published tables and repairs their common errors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datasets_app.importing.column_map import BoundMapping, find_norm_columns
from datasets_app.importing.limits import LIMITS, Limits
from datasets_app.importing.records import BadField, FileError, NormRecord, NoValue, ReadingReport, TableRow, to_text
from datasets_app.importing.table_readers import open_source, read_rows

KEY_NAMES = ("key", "id", "item", "item_id", "image_id", "image", "theme", "name", "stimulus", "item_key")
STATISTICS = ("mean", "sd", "n")
SHOWN = 5
DIMENSION_CHARS = 80
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+\Z", re.ASCII)

NormCells = Mapping[str, tuple[str, Any]]
"""The column and the cell of each statistic of a norm: "mean", "sd" or "n"."""


@dataclass(slots=True)
class NormReading:
    """Norms for the keys of a dataset. If it has an error, none of it may be saved."""

    norms: list[NormRecord] = field(default_factory=list)
    report: ReadingReport = field(default_factory=ReadingReport)

    @property
    def ok(self) -> bool:
        return not self.report.error_total


def read_norms(
    source: Any, items: Mapping[str, str], mapping: Mapping[str, str] | None = None, limits: Limits = LIMITS
) -> NormReading:
    """Read norms for `items` (key -> category) from a path or a binary file.

    A wide table has columns `<Dimension>_mean`, `_SD`, `_N`, in any case, with or without the prefix "human_". A long
    table has the columns dimension, mean, sd, n. `mapping` may give the names of the "key" and "category" columns.
    Keys that differ from the dataset's only by white space, hyphens, underscores, case or an image suffix are repaired
    and reported.
    Unknown keys, and items without norms, are warnings. These are errors:

    - a mean that is not a number;
    - a negative sd;
    - an n that is not a whole number from 1;
    - two values for one (item, dimension).
    """
    reading = NormReading()
    try:
        with open_source(source) as (file, name):
            columns, rows = read_rows(file, name, reading.report, limits)
            _NormTable(columns, items, mapping or {}, reading).read(rows)
    except FileError as error:
        reading.report.error(None, "norms", str(error))
    return reading


def find_norm_cells(row: TableRow, columns: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, NormCells]]:
    """Yield the dimensions in one row of a wide table with their cells. Skip a dimension whose cells are all blank."""
    cells: dict[str, dict[str, Any]] = {}
    for column, (dimension, statistic) in columns.items():
        cells.setdefault(dimension, {})[statistic] = (column, row.values.get(column))
    for dimension, statistics in cells.items():
        if any(value is not None and str(value).strip() for _, value in statistics.values()):
            yield dimension, statistics


def read_norm(row: TableRow, key: str, dimension: str, statistics: NormCells, report: ReadingReport) -> NormRecord:
    """Return the norm in these cells of a row. Raise BadField, which names the column or the dimension.

    The report warns once per file that a number was read with a decimal comma.
    """
    values: dict[str, float | None] = {}
    for statistic in STATISTICS:
        column, cell = statistics.get(statistic, (statistic, None))
        try:
            text = to_text(cell).strip()
            if row.decimal_comma and DECIMAL_COMMA.match(text):
                number = text.replace(",", ".")
                if not report.has_decimal_commas:
                    report.has_decimal_commas = True
                    report.warning(row, column, f"{text!r} is read as {number}; this file's norms have decimal commas")
                text = number
            values[statistic] = _parse_number(statistic, text)
        except ValueError as error:
            raise BadField(column, str(error)) from None
    mean, sd, n = (values[statistic] for statistic in STATISTICS)
    if mean is None:
        raise BadField(dimension, "has no mean")
    return NormRecord(key, dimension, mean, sd, None if n is None else int(n))


def _parse_number(statistic: str, text: str) -> float | None:
    """Return a finite number, or None for a blank cell. Raise ValueError if it is invalid for the statistic."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        remedy = f"; write {text.replace(',', '.')}" if DECIMAL_COMMA.match(text) else ""
        raise ValueError(f"{text!r} is not a number{remedy}") from None
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a finite number")
    if statistic == "sd" and number < 0:
        raise ValueError(f"an sd of {text} is negative")
    if statistic == "n" and not (number.is_integer() and 1 <= number < 2**31):
        raise ValueError(f"an n of {text} is not a whole number from 1")
    return number


def _normalize_name(name: str) -> str:
    """Return the spelling used to compare keys and categories that do not match exactly."""
    return re.sub(r"[\s_-]+", " ", re.sub(r"\.(jpe?g|png|webp|gif)\Z", "", name.strip().casefold()))


class _NormTable:
    """A table of norms, with the dataset whose keys it is matched against."""

    def __init__(
        self, columns: Sequence[str], items: Mapping[str, str], mapping: Mapping[str, str], reading: NormReading
    ) -> None:
        self.items, self.reading, self.report = items, reading, reading.report
        lower = {column.lower(): column for column in reversed(columns)}
        key = mapping.get("key") or next((lower[name] for name in KEY_NAMES if name in lower), "")
        if not key:
            raise FileError(f"no column contains the keys; looked for {', '.join(KEY_NAMES)}")
        category = mapping.get("category", lower.get("category", ""))
        self.bound = BoundMapping({"key": key, "category": category}, columns)
        self.statistics = find_norm_columns(columns)
        long = {"dimension", "mean"} <= set(lower)
        self.long = {name: lower[name] for name in ("dimension", *STATISTICS) if name in lower} if long else None
        if not long and not any(statistic == "mean" for _, statistic in self.statistics.values()):
            raise FileError("no column of means: neither <Dimension>_mean nor dimension and mean")
        # Keys by their loose spellings, without spellings that several keys share.
        spellings: dict[str, list[str]] = {}
        for item_key in items:
            spellings.setdefault(_normalize_name(item_key), []).append(item_key)
        self.loose = {spelling: keys[0] for spelling, keys in spellings.items() if len(keys) == 1}
        self.unknown: list[str] = []
        self.first_row: dict[tuple[str, str], int] = {}

    def read(self, rows: Iterator[TableRow]) -> None:
        for row in rows:
            try:
                if (key := self._find_key(row)) is None:
                    continue
                self._compare_category(row, key)
                for norm in self._iterate_norms(row, key):
                    earlier = self.first_row.setdefault((norm.key, norm.dimension), row.number)
                    if earlier == row.number:
                        self.reading.norms.append(norm)
                    else:
                        self.report.error(row, norm.dimension, f"{norm.key!r} has this norm in row {earlier} already")
            except NoValue as error:
                self.report.error(row, "row", str(error))
        if self.unknown:
            self.report.warning(None, "key", f"{len(self.unknown)} not in the dataset: {_join_some(self.unknown)}")
        keys_with_norms = {key for key, _ in self.first_row}
        missing = [repr(key) for key in self.items if key not in keys_with_norms]
        if missing:
            self.report.warning(None, "key", f"{len(missing)} items have no norms: {_join_some(missing)}")

    def _find_key(self, row: TableRow) -> str | None:
        text = to_text(self.bound.evaluate("key", row.values))
        if text in self.items:
            return text
        key = self.loose.get(_normalize_name(text))
        if key:
            self.report.warning(row, "key", f"{text!r} is read as {key!r}")
        elif text.strip():
            self.unknown.append(f"{text.strip()!r} (row {row.number})")
        else:
            self.report.error(row, "key", "is empty")
        return key

    def _compare_category(self, row: TableRow, key: str) -> None:
        text, category = to_text(self.bound.evaluate("category", row.values)), self.items[key]
        if not text.strip() or not category or text == category:
            return
        same = _normalize_name(text).removesuffix("s") == _normalize_name(category).removesuffix("s")
        relation = "is another spelling of" if same else "differs from"
        self.report.warning(row, "category", f"{text!r} {relation} the dataset's {category!r}, which is kept")

    def _iterate_norms(self, row: TableRow, key: str) -> Iterator[NormRecord]:
        if self.long is None:
            cells = list(find_norm_cells(row, self.statistics))
        else:
            dimension = to_text(row.values.get(self.long["dimension"])).strip().lower()
            if not dimension or len(dimension) > DIMENSION_CHARS:
                self.report.error(row, "dimension", "is empty" if not dimension else "is too long")
                return
            columns = {name: column for name, column in self.long.items() if name != "dimension"}
            cells = [(dimension, {name: (column, row.values.get(column)) for name, column in columns.items()})]
        for dimension, statistics in cells:
            try:
                yield read_norm(row, key, dimension, statistics, self.report)
            except BadField as error:
                self.report.error(row, error.field, str(error))


def _join_some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
