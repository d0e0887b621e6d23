"""A worker's cache of designs of runs, for a few seconds, and of frozen items, up to a maximum number."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from datasets_app.models import Item
from runs_app.engine.admission import Claim
from runs_app.engine.outcomes import RetryPolicy
from runs_app.engine.requests import Question, RunDesign, build_question, build_run_design
from runs_app.models import Dimension, Run, Trial

DESIGN_S = 5.0  # A changed time-out takes effect within this time, a changed price at the next claim.
MAX_QUESTIONS = 20_000


@dataclass(frozen=True, slots=True)
class _LoadedDesign:
    """A run's design, the time when it was loaded, and the reservation for each of its calls at that time."""

    loaded_at: float
    reserve_usd: Decimal
    design: RunDesign
    retry: RetryPolicy


class DesignCache:
    """A cache that fetches rows in sets. The database thread fills it, the event loop reads it."""

    def __init__(self) -> None:
        self._designs: dict[int, _LoadedDesign] = {}
        self._dimensions: dict[int, Dimension] = {}
        self.shortest_lease_s = 120.0
        self._questions: OrderedDict[tuple[int, int | None], Question] = OrderedDict()
        # By trial. It holds only the claims that were fetched last, because answers can be long.
        self._judged_questions: dict[int, Question] = {}

    def fetch(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Fetch the rows that `get` needs for these claims, and return the claims."""
        if claims:
            self._fetch_designs({claim.counter_keys.run_id: claim.reserved_usd for claim in claims})
            self._fetch_questions({(claim.item_id, claim.dimension_id) for claim in claims})
            self._judged_questions = self._fetch_judged_questions(claims)
        return claims

    def get(self, claim: Claim) -> tuple[RunDesign, Question, RetryPolicy]:
        """Return the design, the question and the retry policy of a claim."""
        loaded = self._designs[claim.counter_keys.run_id]
        question = self._judged_questions.get(claim.trial_id) or self._questions[claim.item_id, claim.dimension_id]
        return loaded.design, question, loaded.retry

    def _fetch_designs(self, reserves: Mapping[int, Decimal]) -> None:
        """Reload a run's design when it is old, or when its reservation changed, because its prices changed too."""
        now = time.monotonic()
        stale = [run_id for run_id, usd in reserves.items() if self._is_stale(run_id, now, usd)]
        if not stale:  # Django would compile the whole statement, and only then notice that no row can match.
            return
        for run in Run.objects.with_design().filter(pk__in=stale):
            experiment = run.experiment
            retry = RetryPolicy(experiment.max_attempts, experiment.backoff_s, experiment.max_backoff_s)
            self._designs[run.pk] = _LoadedDesign(now, run.reserve_usd, build_run_design(run), retry)
            self.shortest_lease_s = min(self.shortest_lease_s, experiment.lease_s)

    def _is_stale(self, run_id: int, now: float, reserved_usd: Decimal) -> bool:
        loaded = self._designs.get(run_id)
        return loaded is None or now - loaded.loaded_at > DESIGN_S or loaded.reserve_usd != reserved_usd

    def _fetch_questions(self, pairs: set[tuple[int, int | None]]) -> None:
        missing = [pair for pair in pairs if pair not in self._questions]
        if not missing:
            return
        unknown = {dimension for _, dimension in missing if dimension is not None} - self._dimensions.keys()
        self._dimensions |= Dimension.objects.in_bulk(unknown)
        items = Item.objects.select_related("image").in_bulk({item for item, _ in missing})
        for item_id, dimension_id in missing:
            dimension = self._dimensions[dimension_id] if dimension_id is not None else None
            self._questions[item_id, dimension_id] = build_question(items[item_id], dimension)
        # Items are frozen, so cached questions stay valid.
        while len(self._questions) > MAX_QUESTIONS + len(pairs):
            self._questions.popitem(last=False)

    def _fetch_judged_questions(self, claims: Sequence[Claim]) -> dict[int, Question]:
        """Return the questions of claims for judges and for writers of item rubrics, by trial."""
        by_run: dict[int, list[Claim]] = defaultdict(list)
        for claim in claims:
            if self._designs[claim.counter_keys.run_id].design.sees_target:
                by_run[claim.counter_keys.run_id].append(claim)
        questions = {}
        for run_id, run_claims in by_run.items():
            design = self._designs[run_id].design
            texts = design.fetch_item_texts({claim.item_id for claim in run_claims})
            trial_ids = [claim.trial_id for claim in run_claims]
            rows = Trial.objects.filter(pk__in=trial_ids).values_list("pk", "subject__answer", "rival__answer")
            answers = {pk: (subject, rival) for pk, subject, rival in rows}
            for claim in run_claims:
                variables = design.build_judge_variables(*answers[claim.trial_id], texts.get(claim.item_id))
                questions[claim.trial_id] = self._questions[claim.item_id, claim.dimension_id].with_judge_variables(
                    variables
                )
        return questions
