"""Costs and savings from the ledger, by day, model, stage, run or experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Self

from django.db.models import F, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, TruncDate

from runs_app.models import Condition, Experiment, LanguageModel, LedgerEntry, Preregistration, Run
from runs_app.models.conditions import load_labels

PREFLIGHT = "preflight"  # The stage of calls that belong to no run.
STAGES = (*Condition.Stage.choices, (PREFLIGHT, "Preflight"))
DAY, MODEL, STAGE, RUN, EXPERIMENT = "day", "model", "stage", "run", "experiment"
GROUPS: Mapping[str, Any] = {
    DAY: TruncDate("at"),  # In the active time zone: the reader's, or UTC in a command.
    MODEL: Coalesce("run__condition__model__name", "model__name"),
    STAGE: Coalesce("run__condition__stage", Value(PREFLIGHT)),
    RUN: F("run_id"),
    EXPERIMENT: Coalesce("run__experiment__slug", "experiment__slug"),
}


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of calls, tokens, US dollars and kinds of answers.

    list = paid + saved by the provider's cache, by batches and by reuse. The sums exclude calls of unknown cost
    (`unpriced`), whose reservation (`kept_usd`) may still be billed.
    """

    attempts: int = 0
    answered: int = 0
    reused: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    list_usd: Decimal = Decimal(0)
    paid_usd: Decimal = Decimal(0)
    cache_saved_usd: Decimal = Decimal(0)
    batch_saved_usd: Decimal = Decimal(0)
    reuse_saved_usd: Decimal = Decimal(0)
    unpriced: int = 0
    kept_usd: Decimal = Decimal(0)
    empty: int = 0
    truncated: int = 0
    refused: int = 0
    unparsed: int = 0

    @property
    def calls(self) -> int:
        """Return the number of calls, without answers from the response cache."""
        return self.attempts - self.reused

    @property
    def saved_usd(self) -> Decimal:
        return self.list_usd - self.paid_usd

    @classmethod
    def add_up(cls, lines: Iterable[LedgerLine]) -> Self:
        lines = list(lines)
        return cls(**{name: sum((getattr(line.sums, name) for line in lines), getattr(cls(), name)) for name in NAMES})


NAMES = tuple(field.name for field in fields(Sums))


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """The sums of one group. `key` is a date, a run's id or a name, and `label` its text on pages."""

    key: Any
    label: str
    sums: Sums


def filter_experiment(experiment: Experiment) -> Q:
    """Return a filter for the entries of its runs and preflights. It lists the runs by id to use their index."""
    runs = list(experiment.runs.order_by().values_list("pk", flat=True))
    return Q(run__in=runs) | Q(run__isnull=True, experiment=experiment)


def filter_model(model: LanguageModel) -> Q:
    return Q(run__condition__model=model) | Q(model=model)


def of_unfinished_plans() -> Q:
    """Return a filter for the entries of answers whose preregistered plan has not run."""
    return Q(run__experiment__in=Preregistration.objects.unfinished().values("experiment"))


def filter_stage(stage: str) -> Q:
    return Q(run__isnull=True) if stage == PREFLIGHT else Q(run__condition__stage=stage)


def sum_by_group(entries: QuerySet[LedgerEntry], by: str) -> list[LedgerLine]:
    """Return one line for each group: the newest day first, or the most expensive of other groups.

    Runs of preregistered plans that have not run are one line without a name, instead of a group by model or run. Make
    at most three queries, for any number of calls.
    """
    sums = {name: Sum(name) for name in NAMES}
    hidden = entries.filter(of_unfinished_plans()) if by in (MODEL, RUN) else entries.none()
    groups: Any = entries.order_by()
    if by in (MODEL, RUN):
        groups = groups.exclude(of_unfinished_plans())
    rows = list(groups.values(group=GROUPS[by]).annotate(**sums))
    labels = _load_labels(by, [row["group"] for row in rows])
    lines = [
        LedgerLine(row["group"], labels[row["group"]], Sums(**{name: row[name] for name in NAMES})) for row in rows
    ]
    if (planned := hidden.aggregate(**sums))["attempts"]:
        lines.append(LedgerLine(None, "Preregistered, until its runs have ended", Sums(**planned)))
    if by == DAY:
        return sorted(lines, key=lambda line: line.key, reverse=True)
    return sorted(lines, key=lambda line: (-line.sums.paid_usd, -line.sums.list_usd, line.label))


def _load_labels(by: str, keys: list[Any]) -> dict[Any, str]:
    if by == RUN:
        runs = list(Run.objects.filter(pk__in=keys).with_design())
        labels = load_labels({run.experiment_id for run in runs})
        return {run.pk: f"{labels[run.condition_id]}, {run.wave}" for run in runs} | {None: "Preflights"}
    if by == STAGE:
        return dict(STAGES)
    return {key: str(key or "No experiment") for key in keys}
