"""The rules of the rows of a snapshot, derived from the models: what each column that a file holds may contain."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models

from datasets_app.models import Asset
from evalsite.lib.range_constraints import find_range
from grading_app.publish.export.row_checks import Rule
from grading_app.publish.export.study_rows import ARRIVAL, TABLES, StudyTable

# In the order of their base classes.
KINDS: tuple[tuple[type[models.Field[Any, Any]], str], ...] = (
    (models.JSONField, "json"),
    (ArrayField, "keys"),
    (models.BooleanField, "boolean"),
    (models.IntegerField, "integer"),
    (models.FloatField, "number"),
    (models.DecimalField, "number"),
    (models.DateTimeField, "time"),
    (models.DateField, "date"),
    (models.UUIDField, "uuid"),
    (models.CharField, "text"),
    (models.TextField, "text"),
)
SMALL, INTEGER, BIG = 2**15 - 1, 2**31 - 1, 2**63 - 1


def build_rules() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rules by table and column, as JSON that a process without models can read."""
    return {
        part.table: {column.attname: asdict(build_rule(part, column)) for column in part.list_columns()}
        for part in TABLES
    }


def build_rule(part: StudyTable, column: models.Field[Any, Any]) -> Rule:
    if column.related_model is Asset or (part.model is Asset and column.primary_key):
        return Rule("hash", column.null)
    if column.primary_key or column.is_relation:
        return Rule("key", column.null)
    kind = next(kind for cls, kind in KINDS if isinstance(column, cls))
    low, high = (None, None)
    if kind in ("integer", "number"):
        low, high = find_range(part.model, column)
    if kind == "integer":
        limit = SMALL if isinstance(column, models.SmallIntegerField) else INTEGER
        limit = BIG if isinstance(column, models.BigIntegerField) else limit
        low, high = (-limit if low is None else low), (limit if high is None else min(high, limit))
    choices = tuple(str(value) for value, _ in column.flatchoices)
    if column.attname == "status" and part.model in ARRIVAL:
        choices = ("draft", ARRIVAL[part.model])
    return Rule(
        kind,
        column.null,
        None if low is None else float(low) if kind == "number" else low,
        None if high is None else float(high) if kind == "number" else high,
        column.max_length or 0,
        (*choices, "") if choices and column.blank else choices,
    )
