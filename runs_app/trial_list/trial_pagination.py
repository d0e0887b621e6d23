"""Keyset pagination of trials at any size: no OFFSET, no COUNT, and no scan of more than SEARCHED rows.

A list of all trials reads the nearest keys. Indexed fields are run, status, item and error class: each run is queried
separately through its own index, and the keys are merged. Therefore a run of a million trials costs no more than a run
of a hundred. Other fields (text, rating, flags) have no index. They are searched in a window of SEARCHED keys at a
time. The page says so if the window ended before the page was full. Beside a trial, `list_other_answers` lists the
other answers to its item.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.db.models import (
    BigIntegerField,
    Case,
    F,
    Func,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Cast, Left, Length
from django.utils.text import Truncator

from runs_app.models import Run, Trial
from runs_app.models.conditions import load_labels
from runs_app.models.trials import REFUSED_CLASS, UNUSABLE

PAGE = 25
SEARCHED = 25_000
NEAR = 40
"""Nearest keys to read for each trial of a page, before each run is queried."""
EXCERPT = 240
WIDE_COLUMNS = (
    "raw_response",
    "messages",
    "reasoning",
    "answer",
    "error",
    "run__condition__content",
    "run__errors",
    "item__input",
    "item__metadata",
    "item__grading_scheme",
)


@dataclass(frozen=True)
class Search:
    """The runs to search, and the conditions.

    `status`, `items`, `error_class` and `unusable` (kinds of answers) are indexed; `rest` is not.
    `with_refused_errors` means that `unusable` includes refusals that were errors.
    `annotated` holds keys of trials that match, and keys of items whose trials all match.
    """

    runs: QuerySet[Run]
    status: str = ""
    error_class: str = ""
    items: list[int] | None = None
    unusable: Q = field(default_factory=Q)
    with_refused_errors: bool = False
    annotated: tuple[list[int], list[int]] | None = None
    rest: Q = field(default_factory=Q)

    @property
    def is_indexed(self) -> bool:
        """Return True if an index other than that of run and status narrows the trials."""
        return self.items is not None or self.annotated is not None or bool(self.error_class) or bool(self.unusable)

    @property
    def is_slow(self) -> bool:
        """Return True if no index covers the search and no list of items limits it."""
        return bool(self.rest) and self.items is None and self.annotated is None

    def narrow(self, trials: QuerySet[Trial], *, with_rest: bool = True) -> QuerySet[Trial]:
        """Return the trials that match."""
        if self.items is not None:
            trials = trials.filter(item__in=self.items)
        if self.annotated is not None:
            trials = trials.filter(Q(pk__in=self.annotated[0]) | Q(item__in=self.annotated[1]))
        trials = self._with_status(trials)
        return trials.filter(self.rest) if with_rest else trials

    def branches(self) -> list[QuerySet[Trial]]:
        """Return querysets over one run's trials (the run is OuterRef "pk"), each read from an index in key order."""
        trials = Trial.objects.filter(run=OuterRef("pk"))
        if self.items is not None:
            in_items = trials.filter(item__in=self.items)
            if self.annotated is not None:
                in_items = in_items.filter(Q(pk__in=self.annotated[0]) | Q(item__in=self.annotated[1]))
            return [self._with_status(in_items)]
        if self.annotated is not None:
            keys, items = self.annotated
            of_items = trials.filter(item__in=items).exclude(pk__in=keys)
            return [self._with_status(trials.filter(pk__in=keys)), self._with_status(of_items)]
        if self.error_class:
            return [self._with_status(trials.filter(error_class=self.error_class))]
        if self.unusable:
            branches = [self._with_status(trials.filter(UNUSABLE))]
            if self.with_refused_errors:
                branches.append(self._with_status(trials.filter(error_class=REFUSED_CLASS)))
            return branches
        statuses = [self.status] if self.status else Trial.Status.values
        return [trials.filter(status=status) for status in statuses]

    def _with_status(self, trials: QuerySet[Trial]) -> QuerySet[Trial]:
        trials = trials.filter(error_class=self.error_class) if self.error_class else trials
        trials = trials.filter(self.unusable) if self.unusable else trials
        return trials.filter(status=self.status) if self.status else trials

    def find_descending(self, *, after: int | None = None, before: int | None = None, size: int = 0) -> TrialPage:
        """Return a page like `find`, but in descending order of keys. `after` is the key below which it begins."""
        page = (
            self.find(after=before, size=size) if before is not None and after is None else self._find_last(after, size)
        )
        return TrialPage(page.keys[::-1], after=page.before, before=page.after, searched_to=page.searched_to)

    def _find_last(self, below: int | None, size: int) -> TrialPage:
        page = self._find_backwards(below, size or PAGE)
        return page if below is not None else TrialPage(page.keys, before=page.before, searched_to=page.searched_to)

    def find(self, *, after: int | None = None, before: int | None = None, size: int = 0) -> TrialPage:
        """Return a page of `size` (default PAGE) trials: above `after`, else below `before`, else the first ones."""
        size = size or PAGE
        if before is not None and after is None:
            return self._find_backwards(before, size)
        keys, searched_to = self._find_keys(after, 1, size)
        more = keys[size - 1] if len(keys) > size else searched_to
        back = None if after is None else (keys[0] if keys else after + 1)
        return TrialPage(keys[:size], after=more, before=back, searched_to=searched_to)

    def _find_backwards(self, before: int | None, size: int) -> TrialPage:
        keys, searched_to = self._find_keys(before, -1, size)
        more = keys[size - 1] if len(keys) > size else searched_to
        ascending = keys[:size][::-1]
        return TrialPage(
            ascending,
            after=ascending[-1] if ascending else before - 1 if before is not None else None,
            before=more,
            searched_to=searched_to,
        )

    def _find_keys(self, cursor: int | None, step: int, size: int) -> tuple[list[int], int | None]:
        """Return at most size + 1 keys beyond the cursor in one direction.

        Also return the key at which a slow search stopped early, or None.
        """
        if not self.is_slow:
            return self._fetch_keys(_filter_beyond(cursor, step), step, size + 1, self.rest), None
        first = self._fetch_keys(_filter_beyond(cursor, step), step, 1, Q())
        if not first:
            return [], None
        last = first[0] + step * (SEARCHED - 1)
        low, high = sorted((first[0], last))
        keys = self._fetch_keys(Q(id__gte=low, id__lte=high), step, size + 1, self.rest)
        if len(keys) > size or not self._fetch_keys(_filter_beyond(last, step), step, 1, Q()):
            return keys, None
        return keys, last

    def _fetch_keys(self, within: Q, step: int, limit: int, rest: Q) -> list[int]:
        """Return the first `limit` keys of a range.

        Without conditions they are among the nearest keys, unless most of those belong to other runs. Otherwise one
        query reads an index for each branch of each run, and merges their keys.
        """
        if self.items == []:
            return []
        if not (self.is_indexed or self.status or rest):
            in_order = Trial.objects.filter(within).order_by("pk" if step > 0 else "-pk")
            last = Subquery(
                in_order.values("id")[: NEAR * limit],
                template="(SELECT %(farthest)s(near.id) FROM (%(subquery)s) AS near)",
                farthest="max" if step > 0 else "min",
            )
            # Adding zero keeps the planner from reading all trials of the runs.
            trials = in_order.alias(of_run=F("run_id") + 0).filter(of_run__in=self.runs)
            trials = trials.filter(Q(pk__lte=last) if step > 0 else Q(pk__gte=last))
            keys = list(trials.values_list("pk", flat=True)[:limit])
            if len(keys) == limit:
                return keys
        # Adding zero keeps the planner from scanning the whole primary key to find the trials of a few items.
        key = F("id") + 0 if self.items is not None else F("id")
        by_key = key.asc() if step > 0 else key.desc()
        branches = [branch.filter(within & rest).order_by(by_key).values("id") for branch in self.branches()]
        runs = self.runs.order_by()
        if self.items is None and self.annotated is None and not rest:
            # The first keys are in the runs whose own first keys come first. An index has each of these.
            function = "LEAST" if step > 0 else "GREATEST"
            firsts = (Subquery(branch[:1], output_field=BigIntegerField()) for branch in branches)
            begun = runs.annotate(first=Func(*firsts, function=function)).filter(first__isnull=False)
            runs = runs.filter(pk__in=begun.order_by("first" if step > 0 else "-first").values("pk")[:limit])
        merged = runs.annotate(trial_id=Unnest(*(collect_keys(branch[:limit]) for branch in branches)))
        return list(merged.order_by("trial_id" if step > 0 else "-trial_id").values_list("trial_id", flat=True)[:limit])


@dataclass(frozen=True)
class TrialPage:
    """Keys in ascending order, and the cursors of the adjacent pages.

    `searched_to` is set if a slow search reached the end of its window before the page was full. It is the key from
    which `after` (or `before`, going back) continues.
    """

    keys: list[int]
    after: int | str | None = None
    before: int | str | None = None
    searched_to: int | None = None


def _filter_beyond(cursor: int | None, step: int) -> Q:
    if cursor is None:
        return Q()
    return Q(id__gt=cursor) if step > 0 else Q(id__lt=cursor)


def collect_keys(keys: QuerySet[Any, Any]) -> Cast:
    """Return the keys as an array. The cast types the bare NULL that Django writes for an impossible condition."""
    return Cast(ArraySubquery(keys), ArrayField(BigIntegerField()))


class Unnest(Func):
    """The elements of several arrays, one row each."""

    function = "unnest"
    arg_joiner = " || "
    set_returning = True
    output_field = BigIntegerField()


def load_rows(keys: Iterable[int]) -> QuerySet[Trial]:
    """Return the trials with these keys, in key order, with the columns of a list and an excerpt of the answer."""
    return (
        Trial.objects.filter(pk__in=list(keys))
        .select_related(
            "item",
            "dimension",
            "run__experiment",
            "run__wave",
            "run__condition",
        )
        .defer(*WIDE_COLUMNS)
        .annotate(
            excerpt=Left("answer", EXCERPT),
            error_excerpt=Left("error", EXCERPT),
            answer_length=Length("answer"),
            item_excerpt=Left("item__input", EXCERPT),
            item_target=Left("item__target", EXCERPT),
        )
        .order_by("pk")
    )


MAX_SHOWN = 12
"""Repetitions and other conditions together. The keys `[` and `]` step through all of them."""
ANSWER_EXCERPT = 100


@dataclass(slots=True)
class OtherAnswer:
    """Another trial of the item. scores: the label and score of each grader, but not the trial's own rating again."""

    trial: Any
    condition: str
    is_repetition: bool
    scores: list[tuple[str, float]] = field(default_factory=list)

    @property
    def excerpt(self) -> str:
        return Truncator(self.trial.excerpt).chars(ANSWER_EXCERPT)


def list_other_answers(user: Any, trial: Trial) -> list[OtherAnswer]:
    """Return the nearest other answers to the same item on the same dimension, repetitions first, in three queries."""
    if trial.subject_id:
        return []
    runs = trial.run.experiment.answer_runs.visible_to(user)
    first = Case(When(run=trial.run_id, then=Value(0)), default=Value(1), output_field=IntegerField())
    labels = load_labels([trial.run.experiment_id])
    trials = (
        Trial.objects.filter(run__in=list(runs.values_list("pk", flat=True)), item=trial.item_id)
        .filter(dimension=trial.dimension_id)
        .exclude(pk=trial.pk)
        .annotate(excerpt=Left("answer", ANSWER_EXCERPT + 1))  # The excerpt then shows that it is cut.
        .select_related("run__wave")
        .defer("answer", "raw_response", "messages", "reasoning", "error", "run__errors")
        .order_by(first, "run", "sample_idx", "pk")[:MAX_SHOWN]
    )
    answers = {
        other.pk: OtherAnswer(other, labels[other.run.condition_id], other.run_id == trial.run_id) for other in trials
    }
    model: Any = Trial._meta.get_field("gradings").related_model
    scored = model.objects.filter(trial__in=list(answers), score__isnull=False)
    parts = ("condition__grader", "condition__rubric", "condition__panel")
    for grading in scored.select_related(*parts).order_by("condition"):
        if not grading.condition.repeats_ratings:
            answers[grading.trial_id].scores.append((grading.condition.label, grading.score))
    return list(answers.values())
