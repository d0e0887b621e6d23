"""Mappings from the columns of a table to the fields of an item.

A mapping is plain data, {field: expression}, and is stored with the dataset. An expression has one of three forms:

- the name of a column;
- names joined by "+", whose values are joined by ":" or form the list of choices;
- a template with {column}, where {column|after:####} means the text after the last "####", stripped.

A field mapped to "" is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from datasets_app.importing.limits import LIMITS
from datasets_app.importing.records import FileError, NoValue, to_text
from evalsite.lib.text.names import did_you_mean

FIELDS = ("key", "input", "image", "target", "choices", "grading_scheme", "category", "metadata", "dims")
SHEET = "sheet"
"""The key of a mapping that names the sheet of a spreadsheet. It is not a field of an item."""

COMMON_NAMES: dict[str, tuple[str, ...]] = {
    "key": ("key", "id", "item_id", "image_id", "question_id", "item_key", "uid"),
    "input": ("input", "question", "text", "prompt", "problem"),
    "image": ("image", "file", "filename", "file_name", "image_path", "path", "photograph"),
    "target": ("target", "answer", "label", "ground_truth", "solution", "reference"),
    "choices": ("choices", "options"),
    "grading_scheme": ("grading_scheme", "rubric", "criteria"),
    "category": ("category", "theme", "subject", "stratum", "topic"),
}
NORM_COLUMN = re.compile(r"(?:human[ _-]+)?(?P<dimension>.+?)[ _-]+(?P<statistic>mean|sd|n)\Z", re.IGNORECASE)
PLACEHOLDER = re.compile(r"\{([^{}|]+)(?:\|([^{}]*))?\}")
AFTER = "after:"

Value = Callable[[Mapping[str, Any]], Any]


def guess_mapping(columns: Sequence[str], by_values: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a mapping guessed from common names of columns, ignoring case.

    by_values: fields whose columns are found by their values. They replace a guess from a name.
    """
    plain_names = {re.sub(r"[ .-]+", "_", column.strip().lower()): column for column in reversed(columns)}
    guess: dict[str, str] = {}
    for field, names in COMMON_NAMES.items():
        column = next((plain_names[name] for name in names if name in plain_names), None)
        if column is not None:
            guess[field] = column
    dimensions = find_norm_dimensions(columns)
    return guess | dict(by_values or {}) | ({"dims": "+".join(dimensions)} if dimensions else {})


def parse_mapping(pairs: Sequence[str]) -> dict[str, str]:
    """Parse pairs such as `["key=id", "target={answer|after:####}"]`. A FileError names the field."""
    mapping: dict[str, str] = {}
    for pair in pairs:
        field, equals, expression = pair.partition("=")
        if not equals:
            raise FileError(f"map {pair!r}: write field=column")
        if field != SHEET:
            _check_field(field)
        if field in mapping:
            raise FileError(f"map {field}: given twice")
        mapping[field] = expression
    return mapping


def _check_field(field: str) -> None:
    if field not in FIELDS:
        raise FileError(f"map {field}: unknown field; the fields are {', '.join(FIELDS)}")


def find_norm_dimensions(columns: Sequence[str]) -> list[str]:
    """Return the dimensions with a column of means, in lower case: "Valence_mean", "human_valence_mean"."""
    matches = (NORM_COLUMN.match(column.strip()) for column in columns)
    means = (m["dimension"].strip().lower() for m in matches if m and m["statistic"].lower() == "mean")
    return list(dict.fromkeys(means))


def find_norm_columns(columns: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return each norm column with its dimension in lower case and its statistic: "mean", "sd" or "n"."""
    matches = {column: NORM_COLUMN.match(column.strip()) for column in columns}
    return {
        column: (match["dimension"].strip().lower(), match["statistic"].lower())
        for column, match in matches.items()
        if match
    }


class BoundMapping:
    """A mapping checked against the columns of a table. `evaluate(field, row)` computes the field's expression.

    `metadata` lists the columns stored as metadata: the named columns, or all columns that no field uses. `norms` lists
    the columns with norms of the chosen dimensions. Raise FileError if a field or a column does not exist.
    """

    def __init__(self, mapping: Mapping[str, str], columns: Sequence[str]) -> None:
        for field in mapping:
            _check_field(field)
        self.columns = columns
        self.used: set[str] = set()
        expressions = {field: expression for field, expression in mapping.items() if expression}
        self.values = {
            field: self._compile_expression(field, expressions[field])
            for field in FIELDS
            if field in expressions and field not in ("metadata", "dims")
        }
        requested = {name.strip().lower() for name in expressions.get("dims", "").split("+") if name.strip()}
        available = find_norm_dimensions(self.columns)
        unknown = sorted(requested - set(available))
        if unknown:
            names = ", ".join(available) or "nothing"
            raise FileError(f"map dims: no column {unknown[0]}_mean; means exist for {names}")
        norms = find_norm_columns(self.columns)
        self.norms = {column: target for column, target in norms.items() if target[0] in requested}
        self.used |= set(self.norms)
        if (metadata := mapping.get("metadata")) is None:
            self.metadata = [column for column in self.columns if column not in self.used]
        else:
            self.metadata = [self._require_column("metadata", name) for name in metadata.split("+") if name]

    def __contains__(self, field: str) -> bool:
        return field in self.values

    def evaluate(self, field: str, row: Mapping[str, Any]) -> Any:
        """Return the field's value in this row, or None if the field is not mapped or the row lacks the column."""
        return self.values[field](row) if field in self.values else None

    def _compile_expression(self, field: str, text: str) -> Value:
        if text in self.columns:
            self.used.add(text)
            return lambda row: row.get(text)
        if "{" in text:
            return self._compile_template(field, text)
        names = [self._require_column(field, name) for name in text.split("+")]
        if field == "choices":
            return lambda row: [row[name] for name in names if row.get(name) not in (None, "")]
        return lambda row: ":".join(_limit_length(to_text(row.get(name)) for name in names))

    def _compile_template(self, field: str, text: str) -> Value:
        names = {
            match[1]: self._require_column(field, match[1].strip(), in_full=match[2] is None)
            for match in PLACEHOLDER.finditer(text)
        }
        filters = {match[2] for match in PLACEHOLDER.finditer(text) if match[2] is not None}
        wrong = sorted(name for name in filters if not name.startswith(AFTER) or name == AFTER)
        if wrong or re.search(r"[{}]", PLACEHOLDER.sub("", text)):
            raise FileError(f"map {field}: write {{column}} or {{column|after:TEXT}}, not {text!r}")

        matches = list(PLACEHOLDER.finditer(text))
        between = PLACEHOLDER.split(text)[:: PLACEHOLDER.groups + 1]

        def fill(row: Mapping[str, Any]) -> str:
            values = _limit_length(_apply_filters(to_text(row.get(names[match[1]])), match, names) for match in matches)
            return between[0] + "".join(chain.from_iterable(zip(values, between[1:], strict=True)))

        return fill

    def _require_column(self, field: str, name: str, *, in_full: bool = True) -> str:
        """Return the column's name if it exists, else raise FileError.

        A column of which a field uses only a part (`in_full` is False) also stays in the metadata.
        """
        if name not in self.columns:
            hint = did_you_mean(name[:100], self.columns, shown=repr)
            hint = hint or f"the columns are {', '.join(self.columns[:20])}"
            raise FileError(f"map {field}: no column {name!r}; {hint}")
        if in_full:
            self.used.add(name)
        return name


def _limit_length(texts: Iterable[str]) -> list[str]:
    """Return the texts. Raise NoValue as soon as their total length exceeds the limit of a field."""
    accepted, size = [], 0
    for text in texts:
        size += len(text)
        if size > LIMITS.text_chars:
            raise NoValue(f"has more than {LIMITS.text_chars:,} characters")
        accepted.append(text)
    return accepted


def _apply_filters(value: str, match: re.Match[str], names: Mapping[str, str]) -> str:
    if match[2] is None:
        return value
    marker = match[2].removeprefix(AFTER)
    _, separator, text = value.rpartition(marker)
    if not separator:
        raise NoValue(f"{marker!r} does not occur in column {names[match[1]]}")
    return text.strip()
