"""Tests of a rubric on a few stored answers: real calls by the engine, on the experiment's budget, without gradings.

A test is a judge condition without a grade condition. A rubric is always tested on the same answers, so a difference
comes from the rubric. A repeated test is another sample.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from django.db import transaction
from django.db.models import Max, QuerySet

from evalsite.lib.history import Actor
from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.hashing import build_condition_id, slugify_name
from grading_app.grading.judging import grade_conditions
from grading_app.grading.judging.verdicts import Verdict, read_verdict
from grading_app.models import Grader, Rubric, RubricTest
from runs_app.llm import judge_prompt
from runs_app.models import Condition, Experiment, LanguageModel, Prompt, Run, Sampler, TextSet, Trial
from runs_app.models.trials import BLANK
from runs_app.planning import token_bounds
from runs_app.planning.work import PlanError, add_trials, get_or_create_run, refuse_cancelled
from runs_app.pricing import costs
from runs_app.taskqueue.enqueue import enqueue_drains

MAX_ANSWERS = 5
MAX_ROWS = 25
ANSWERED_ITEMS = f"""SELECT i.id FROM datasets_app_item i WHERE i.dataset_id = %(dataset)s AND NOT i.excluded
AND %(n_runs)s <= (SELECT count(*) FROM unnest(%(runs)s::bigint[]) AS r (id) WHERE EXISTS (SELECT FROM runs_app_trial t
    WHERE t.run_id = r.id AND t.item_id = i.id AND t.status = 'done' AND NOT {BLANK.format(t="t")}))
ORDER BY i.position, i.id"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class PreviewCost:
    """The number of calls, and their highest cost in US dollars (None if unknown)."""

    calls: int
    ceiling_usd: Decimal | None


@dataclass(frozen=True)
class RubricPreview:
    """A saved rubric, not necessarily approved, with a model and an experiment whose answers it judges.

    `texts` is the text set for {{item_rubric}}.
    """

    rubric: Rubric
    experiment: Experiment
    model: LanguageModel
    sampler: Sampler
    texts: TextSet | None = None

    @property
    def grader(self) -> Grader:
        """Return the unsaved judge of this test, as if its rubric were approved."""
        rubric = copy.copy(self.rubric)
        rubric.status = Rubric.Status.APPROVED
        return Grader(name="try", language_model=self.model, rubric=rubric, sampler=self.sampler, text_set=self.texts)

    def find_problems(self) -> Iterator[str]:
        if self.rubric.kind == Rubric.Kind.WRITER:
            yield f"{self.rubric} writes item rubrics and gives no verdicts to test"
            return
        yield from grade_conditions.find_problems(self.experiment, self.grader)

    def estimate_cost(self) -> PreviewCost:
        """Return the cost of the calls: zero without answers, or for a writer's template, which gives no verdicts."""
        answers = [] if self.rubric.kind == Rubric.Kind.WRITER else self.select_answers()
        ceiling = self._compute_ceiling(self._count_request_tokens(answers)) if answers else Decimal(0)
        return PreviewCost(len(answers), None if ceiling is None else len(answers) * ceiling)

    def select_answers(self) -> list[tuple[Trial, Trial | None]]:
        """Return one answer for each of some evenly spaced items, with a rival answer for pairwise rubrics."""
        runs = list(self.experiment.answer_runs.filter(n_done__gt=0).order_by("pk"))
        in_pairs = self.rubric.kind == Rubric.Kind.PAIRWISE
        items = _space_evenly(_find_answered_items(self.experiment, runs, 2 if in_pairs else 1))
        return [pair for index, item in enumerate(items) for pair in _select_answers(item, index, runs, in_pairs)]

    def request(self, *, by: Actor) -> Run:
        """Request verdicts on five answers. Raise PlanError, and change nothing, if that is impossible."""
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=self.experiment.pk)
            answers = self.select_answers()
            problems = list(self.find_problems()) or (
                [] if answers else [f"{self.experiment} has no answers to judge yet"]
            )
            if problems:
                raise PlanError(problems)
            content = self.grader.content
            condition, _ = Condition.objects.get_or_create(
                experiment=self.experiment,
                condition_id=build_condition_id(
                    slugify_name(f"try-{self.rubric.name}-v{self.rubric.version}"), content
                ),
                defaults={
                    "stage": Condition.Stage.JUDGE,
                    "model": self.model,
                    "sampler": self.sampler,
                    "content": content,
                },
            )
            RubricTest.objects.get_or_create(condition=condition, defaults={"rubric": self.rubric})
            tokens = self._count_request_tokens(answers)
            bounds = costs.CallBounds(self._compute_ceiling(tokens), tokens, self.grader.output_limit)
            run = get_or_create_run(condition, self.experiment.get_first_wave(), bounds)
            refuse_cancelled(run, "delete that run, or change the rubric, to test it again")
            add_trials(
                run,
                partial(_insert_trials, answers),
                by=by,
                reason=f"{self.rubric} is tested on {len(answers)} answers",
            )
        enqueue_drains()
        return run

    def _count_request_tokens(self, answers: list[tuple[Trial, Trial | None]]) -> int:
        """Return the tokens of a request with the longest of these answers and the longest item."""
        longest = max(
            (answer.answer for pair in answers for answer in pair if answer), key=lambda text: len(text.encode())
        )
        rival = longest if self.rubric.kind == Rubric.Kind.PAIRWISE else None
        variables = judge_prompt.build_rubric_variables(self.rubric.content) | judge_prompt.build_answer_variables(
            longest, rival
        )
        variables[judge_prompt.ITEM_RUBRIC] = "x" * self.grader.measure_longest_text()
        closing = {"role": "user", "content": variables[judge_prompt.VERDICT_FORM]}
        prompt = Prompt(messages=[*self.rubric.messages, closing], answer_format="text")
        return token_bounds.bound_input_tokens(self.model, prompt, self.experiment.dataset, [], variables)

    def _compute_ceiling(self, tokens: int) -> Decimal | None:
        return self.model.prices.compute_ceiling(tokens, self.grader.output_limit)


def _find_answered_items(experiment: Experiment, runs: list[Run], n_runs: int) -> list[int]:
    """Return the items that at least `n_runs` runs have answered, in dataset order."""
    parameters = {"dataset": experiment.dataset_id, "runs": [run.pk for run in runs], "n_runs": n_runs}
    return [key for (key,) in fetch_rows(ANSWERED_ITEMS, parameters)]


def _space_evenly(keys: list[int]) -> list[int]:
    """Return at most MAX_ANSWERS keys, evenly spaced from the first. The choice is deterministic."""
    if len(keys) <= MAX_ANSWERS:
        return keys
    return [keys[index * len(keys) // MAX_ANSWERS] for index in range(MAX_ANSWERS)]


def _select_answers(item: int, index: int, runs: list[Run], in_pairs: bool) -> list[tuple[Trial, Trial | None]]:
    """Return one answer to the item, alternating between runs.

    For pairs, add another run's answer to the same question; return nothing if there is none.
    """
    done = Trial.objects.with_text().filter(run__in=runs, item=item)
    rows = list(done.order_by("sample_idx", "run_id", "dimension_id")[:MAX_ROWS])
    subject = rows[index % len(rows)]
    if not in_pairs:
        return [(subject, None)]
    rivals = done.filter(dimension=subject.dimension_id).exclude(run=subject.run_id)
    return [(subject, rival) for rival in rivals.order_by("sample_idx", "run_id")[:1]]


def _insert_trials(answers: list[tuple[Trial, Trial | None]], run: Run) -> int:
    last = run.trials.aggregate(last=Max("sample_idx"))["last"]
    index = 0 if last is None else last + 1
    trials = [
        Trial(
            run=run,
            item_id=subject.item_id,
            dimension_id=subject.dimension_id,
            sample_idx=index,
            subject=subject,
            rival=rival,
        )
        for subject, rival in answers
    ]
    return len(Trial.objects.bulk_create(trials))


@dataclass(frozen=True)
class PreviewedVerdict:
    """A call of a rubric test and its parsed verdict. The verdict is None until the call is done."""

    trial: Trial
    verdict: Verdict | None


def list_previewed_verdicts(rubric: Rubric, experiments: QuerySet[Experiment]) -> list[PreviewedVerdict]:
    """Return the newest calls that tested this rubric in these experiments."""
    rows = Trial.objects.filter(
        run__experiment__in=experiments,
        run__condition__rubric_test__rubric=rubric,
    ).select_related("run__experiment", "run__condition__model", "item", "subject", "rival")
    previewed = []
    for row in rows.order_by("-pk")[:MAX_ROWS]:
        verdict = None
        if row.status == Trial.Status.DONE:
            answers = [judged.answer for judged in (row.subject, row.rival) if judged]
            rubric_content = row.run.condition.content["rubric"]
            verdict = read_verdict(row.answer, rubric_content, answers, is_truncated=row.truncated)
        previewed.append(PreviewedVerdict(row, verdict))
    return previewed
