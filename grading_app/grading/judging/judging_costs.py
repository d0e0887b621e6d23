"""The answers that a grader judges in one wave, and the cost of judging them before it is requested.

Costs are ceilings and totals, for answers that exist and for those of a design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import product
from typing import Any

from django.db import connection
from django.db.models import Max

from evalsite.lib.sql import fetch_rows
from grading_app.grading.judging import grade_conditions
from grading_app.models import Grader, Rubric
from runs_app.experiment_options import OnEmpty
from runs_app.llm import judge_prompt, prompts
from runs_app.models import Condition, Experiment, Prompt, Run, Wave
from runs_app.models.trials import BLANK
from runs_app.planning import token_bounds
from runs_app.planning.cost_estimate import compute_observed_tokens, describe_price, sum_costs
from runs_app.pricing import costs
from runs_app.pricing.costs import Basis, CostEstimate, Expectation

TOO_LONG = "char_length({t}.answer) > %(longest)s"
JUDGED = f"(%(judges_empty)s OR NOT {BLANK}) AND (%(longest)s::int IS NULL OR NOT {TOO_LONG})"

# A pending or running verdict is never requested twice, not even with `force`. A cancelled verdict counts as not
# requested.
REQUESTED = """EXISTS (SELECT FROM runs_app_trial v
    WHERE v.run_id = %(run)s AND v.subject_id = a.id AND v.rival_id IS NOT DISTINCT FROM {rival}
    AND v.status <> 'cancelled' AND (NOT %(force)s OR v.status IN ('pending', 'running')))"""

SINGLE_ANSWERS = f"""FROM runs_app_trial a
WHERE a.run_id = ANY(%(runs)s) AND a.status = 'done' AND {JUDGED.format(t="a")}"""

# Both orders: each pair occurs twice.
ANSWER_PAIRS = f"""FROM runs_app_trial a JOIN runs_app_trial b ON b.item_id = a.item_id AND b.sample_idx = a.sample_idx
    AND b.dimension_id IS NOT DISTINCT FROM a.dimension_id AND b.run_id <> a.run_id
WHERE a.run_id = ANY(%(runs)s) AND a.status = 'done' AND {JUDGED.format(t="a")}
AND b.run_id = ANY(%(runs)s) AND b.status = 'done' AND {JUDGED.format(t="b")}"""

INSERT = """INSERT INTO runs_app_trial (run_id, sample_idx, item_id, dimension_id, subject_id, rival_id)
SELECT %(run)s, %(sample_idx)s, a.item_id, a.dimension_id, a.id, {rival} {answers} AND NOT {requested}
ORDER BY a.sample_idx, a.item_id, a.dimension_id, a.id"""
COUNT_VERDICTS = "SELECT count(*), count(*) FILTER (WHERE NOT {requested}) {answers}"
COUNT_ANSWERS = f"""SELECT count(*), count(*) FILTER (WHERE {BLANK.format(t="a")}),
    count(*) FILTER (WHERE %(longest)s::int IS NOT NULL AND {TOO_LONG.format(t="a")}),
    count(*) FILTER (WHERE a.truncated), count(*) FILTER (WHERE a.refused), coalesce(max(octet_length(a.answer)), 0)
FROM runs_app_trial a WHERE a.run_id = ANY(%(runs)s) AND a.status = 'done'"""  # noqa: S608 - constants only

# These answers get the lowest score without a call, with a code for the reason.
SCORE_WITHOUT_CALL = f"""INSERT INTO grading_app_grading
    (condition_id, trial_id, score, score_raw, parse_ok, parse_error, reasoning, detail, created_at)
SELECT %(condition)s, a.id, %(lowest)s, '', true, '', '', jsonb_build_object('code', code), now()
FROM (SELECT id, CASE WHEN {BLANK.format(t="t")} THEN 'empty_answer' ELSE 'answer_too_long' END AS code
    FROM runs_app_trial t WHERE t.run_id = ANY(%(runs)s) AND t.status = 'done'
    AND ((%(zeroes_empty)s AND {BLANK.format(t="t")}) OR (%(longest)s::int IS NOT NULL AND {TOO_LONG.format(t="t")}))) a
ON CONFLICT (condition_id, trial_id) DO NOTHING"""  # noqa: S608 - constants only
FILLER = "x"
BYTES_A_TOKEN = 3  # The inverse of the ratio in the token estimate.


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """Counts of done answers by property. `longest` is in bytes."""

    answers: int
    empty: int
    too_long: int
    truncated: int
    refused: int
    longest: int


@dataclass
class AnswerSelection:
    """The done answers of one wave of an experiment, selected for one grader."""

    experiment: Experiment
    grader: Grader
    wave: Wave
    force: bool = False
    conditions: Collection[str] | None = None  # Condition ids. None means all conditions.

    @cached_property
    def condition(self) -> Any:
        return grade_conditions.find_condition(self.experiment, self.grader)

    @property
    def in_pairs(self) -> bool:
        return self.grader.rubric.kind == Rubric.Kind.PAIRWISE

    def find_run(self) -> Run | None:
        """Return the judge's run in this wave, or None if it does not exist yet."""
        if self.condition is None or self.wave.pk is None:
            return None
        return Run.objects.filter(condition=self.condition.judge_condition, wave=self.wave).first()

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        runs = self.experiment.answer_runs.filter(wave=self.wave)
        if self.conditions is not None:
            runs = runs.filter(condition__condition_id__in=self.conditions)
        grades_empty = self.experiment.on_empty != OnEmpty.SKIP  # With SKIP, rules skip empty answers too.
        return {
            "runs": list(runs.values_list("pk", flat=True)),
            "longest": self.grader.longest_answer,
            "judges_empty": grades_empty and self.grader.on_empty == Grader.OnEmpty.GRADE,
            "zeroes_empty": grades_empty and self.grader.on_empty == Grader.OnEmpty.ZERO,
            "force": self.force,
        }

    @cached_property
    def counts(self) -> AnswerCounts:
        """Return the counts of the answers. `longest` covers the whole wave.

        One run holds all verdicts of the wave, and its reservation must cover each of them.
        """
        counts = AnswerCounts(*self._fetch_row(COUNT_ANSWERS, {}))
        if self.conditions is None:
            return counts
        return replace(counts, longest=replace(self, conditions=None).counts.longest)

    def count_verdicts(self) -> tuple[int, int]:
        """Return the number of verdicts that the answers need, and the number not requested yet."""
        run = self.find_run()
        needed, new = self._fetch_row(self._build_sql(COUNT_VERDICTS), {"run": run.pk if run else None})
        return needed, new

    def insert_trials(self, run: Run) -> int:
        """Insert the judge's missing trials into its run, and return their number. The run must be locked."""
        last = run.trials.aggregate(last=Max("sample_idx"))["last"] if self.force else None
        sample_idx = 0 if last is None else last + 1
        return self._execute(self._build_sql(INSERT), {"run": run.pk, "sample_idx": sample_idx})

    def score_without_call(self, condition_id: int) -> int:
        """Insert gradings with the lowest score for answers that need no call, and return their number.

        Return 0 for pairwise rubrics.
        """
        if self.in_pairs:
            return 0
        return self._execute(SCORE_WITHOUT_CALL, {"condition": condition_id, "lowest": self.grader.rubric.lowest_score})

    def _build_sql(self, template: str) -> str:
        rival = "b.id" if self.in_pairs else "NULL"
        answers = ANSWER_PAIRS if self.in_pairs else SINGLE_ANSWERS
        return template.format(answers=answers, requested=REQUESTED.format(rival=rival), rival=rival)

    def _execute(self, statement: str, parameters: dict[str, Any]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, self._parameters | parameters)
            return int(cursor.rowcount)

    def _fetch_row(self, statement: str, parameters: dict[str, Any]) -> Any:
        return fetch_rows(statement, self._parameters | parameters)[0]

    def find_largest_request(self, longest: int | None = None) -> int:
        """Return the tokens of the largest request, with the longest answer of the wave or one of `longest` bytes."""
        grader = self.grader
        answer = FILLER * (self.counts.longest if longest is None else longest)
        content = grader.content
        variables = {
            **judge_prompt.build_rubric_variables(content["rubric"]),
            **judge_prompt.build_answer_variables(answer, answer if self.in_pairs else None),
            judge_prompt.ITEM_RUBRIC: FILLER * grader.measure_longest_text(),
        }
        closing = {"role": "user", "content": content["verdict_form"]}
        prompt = Prompt(messages=[*grader.rubric.messages, closing], answer_format="text")
        experiment = self.experiment
        dimensions = list(experiment.dimensions.all())
        return token_bounds.bound_input_tokens(grader.language_model, prompt, experiment.dataset, dimensions, variables)

    def compute_bounds(self) -> costs.CallBounds:
        """Return the bounds of one verdict. They cover the longest answer so far."""
        tokens = self.find_largest_request()
        return costs.CallBounds(self.compute_ceiling(tokens), tokens, self.grader.output_limit)

    def is_batched(self) -> bool:
        """Return whether verdicts use the batch API, as the answers did, if the judge's endpoint supports it."""
        return self.experiment.batch and self.grader.language_model.endpoint.accepts_batches

    def get_prices(self) -> costs.Prices:
        model = self.grader.language_model
        return model.prices.in_batch(model.batch_discount if self.is_batched() else Decimal(0))

    def compute_ceiling(self, input_tokens: int) -> Decimal | None:
        return self.get_prices().compute_ceiling(input_tokens, self.grader.output_limit)

    def compute_expected(self, ceiling: Decimal | None) -> Expectation | None:
        """Return the expected cost of a call from the calls of this judge, else of its model, else of all judges."""
        judges = Run.objects.filter(experiment=self.experiment, condition__stage=Condition.Stage.JUDGE)
        runs = list(judges.with_reuse().select_related("condition"))
        own = self.condition.judge_condition_id if self.condition else None
        return self.get_prices().compute_expected_cost(
            ceiling,
            own=compute_observed_tokens(run for run in runs if run.condition_id == own),
            group=compute_observed_tokens(
                run for run in runs if run.condition.model_id == self.grader.language_model_id
            ),
            pooled=compute_observed_tokens(runs),
        )


def estimate_judging(
    experiment: Experiment,
    graders: Sequence[Grader],
    waves: Iterable[Wave],
    *,
    force: bool = False,
    conditions: Collection[str] | None = None,
) -> CostEstimate:
    """Return the estimated cost of judging the stored answers of these waves: new and pending verdicts.

    `conditions` holds the ids of the conditions whose answers count; None means all.
    """
    parts = []
    for grader, wave in product(graders, waves):
        answers = AnswerSelection(experiment, grader, wave, force, conditions)
        run = answers.find_run()
        needed, new = answers.count_verdicts()
        to_do = new + (run.n_pending + run.n_running if run else 0)
        ceiling = answers.compute_ceiling(answers.find_largest_request()) if to_do else Decimal(0)
        parts.append(GraderEstimate(needed, to_do, ceiling, answers.compute_expected(ceiling)))
    return sum_estimates(experiment, graders, parts)


@dataclass(frozen=True, slots=True)
class GraderEstimate:
    """One grader in one wave: the verdicts needed, the calls to make, and the cost of a call."""

    needed: int
    to_do: int
    ceiling: Decimal | None
    expected: Expectation | None


def sum_estimates(experiment: Experiment, graders: Sequence[Grader], parts: Sequence[GraderEstimate]) -> CostEstimate:
    basis: Counter[Basis] = Counter()
    for part in parts:
        if part.expected:
            basis[part.expected.basis] += part.to_do
    to_do = sum(part.to_do for part in parts)
    observed = sum(trials for name, trials in basis.items() if name != "ceiling")
    models = {grader.language_model.pk: grader.language_model for grader in graders}.values()
    shows_images = any(prompts.uses_variable(grader.rubric.messages, prompts.IMAGE) for grader in graders)
    return CostEstimate(
        trials=sum(part.needed for part in parts),
        to_do=to_do,
        spent_usd=experiment.spent_usd,
        ceiling_usd=sum_costs((part.to_do, part.ceiling) for part in parts),
        expected_usd=sum_costs((part.to_do, part.expected.usd if part.expected else None) for part in parts),
        basis={name: trials for name, trials in basis.items() if trials},
        coverage=observed / to_do if to_do else 1.0,
        prices=[describe_price(model, shows_images=shows_images) for model in models],
        unknown_prices=[model.name for model in models if not model.prices.is_known],
        problems=[problem for grader in graders for problem in grade_conditions.find_problems(experiment, grader)],
        warnings=[warning for grader in graders for warning in grade_conditions.find_warnings(experiment, grader)],
    )


def forecast_judging(experiment: Experiment, wave_label: str, answers: int, longest: int | None) -> CostEstimate:
    """Return the estimate of verdicts on `answers` answers of a wave, without the verdicts already requested.

    `longest` is the longest answer in tokens, or None if answers have no limit.
    Without a limit, a judge that is not free has no cost ceiling.
    """
    wave = experiment.waves.filter(label=wave_label).first() or Wave(experiment=experiment, label=wave_label)
    graders = Grader.objects.of_design(experiment)
    cells = experiment.language_models.count() * experiment.prompts.count() * experiment.samplers.count()
    parts = []
    for grader in graders:
        selection = AnswerSelection(experiment, grader, wave)
        run = selection.find_run()
        # The number of verdicts: one per answer; for pairs, one per answer, other condition and order.
        needed = answers * (cells - 1) if selection.in_pairs else answers
        to_do = max(0, needed - (run.n_trials if run else 0)) + (run.n_pending + run.n_running if run else 0)
        ceiling: Decimal | None = Decimal(0)
        if to_do and longest is not None:
            ceiling = selection.compute_ceiling(selection.find_largest_request(longest * BYTES_A_TOKEN))
        elif to_do and not grader.language_model.prices.is_free:
            ceiling = None
        parts.append(GraderEstimate(needed, to_do, ceiling, selection.compute_expected(ceiling)))
    return sum_estimates(experiment, graders, parts)
