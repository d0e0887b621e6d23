"""The cost of judging before it is requested, for answers that exist and for those of a design: ceilings and totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from grading_app.judging import grade_conditions
from grading_app.judging.answer_selection import AnswerSelection
from grading_app.models import Grader
from runs_app.llm import judge_prompt, prompts
from runs_app.models import Condition, Experiment, Prompt, Run, Wave
from runs_app.planning import token_bounds
from runs_app.planning.cost_estimate import compute_observed_tokens, describe_price, sum_costs
from runs_app.pricing import costs
from runs_app.pricing.costs import Basis, CostEstimate, Expectation

FILLER = "x"
BYTES_A_TOKEN = 3  # The inverse of the ratio in the token estimate.


def find_largest_request(answers: AnswerSelection, longest: int | None = None) -> int:
    """Return the tokens of the largest request, with the longest answer of the wave or one of `longest` bytes."""
    grader = answers.grader
    answer = FILLER * (answers.counts.longest if longest is None else longest)
    content = grader.content
    variables = {
        **judge_prompt.build_rubric_variables(content["rubric"]),
        **judge_prompt.build_answer_variables(answer, answer if answers.in_pairs else None),
        judge_prompt.ITEM_RUBRIC: FILLER * grader.measure_longest_text(),
    }
    closing = {"role": "user", "content": content["verdict_form"]}
    prompt = Prompt(messages=[*grader.rubric.messages, closing], answer_format="text")
    experiment = answers.experiment
    dimensions = list(experiment.dimensions.all())
    return token_bounds.bound_input_tokens(grader.language_model, prompt, experiment.dataset, dimensions, variables)


def compute_bounds(answers: AnswerSelection) -> costs.CallBounds:
    """Return the bounds of one verdict. They cover the longest answer so far."""
    tokens = find_largest_request(answers)
    return costs.CallBounds(compute_ceiling(answers, tokens), tokens, answers.grader.output_limit)


def is_batched(answers: AnswerSelection) -> bool:
    """Return whether verdicts use the batch API, as the answers did, if the judge's endpoint supports it."""
    return answers.experiment.batch and answers.grader.language_model.endpoint.accepts_batches


def get_prices(answers: AnswerSelection) -> costs.Prices:
    model = answers.grader.language_model
    return model.prices.in_batch(model.batch_discount if is_batched(answers) else Decimal(0))


def compute_ceiling(answers: AnswerSelection, input_tokens: int) -> Decimal | None:
    return costs.compute_ceiling(get_prices(answers), input_tokens, answers.grader.output_limit)


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
    waves = list(waves)
    parts = [
        _estimate_part(AnswerSelection(experiment, grader, wave, force, conditions))
        for grader in graders
        for wave in waves
    ]
    return sum_estimates(experiment, graders, parts)


def _estimate_part(answers: AnswerSelection) -> GraderEstimate:
    run = answers.find_run()
    needed, new = answers.count_verdicts()
    to_do = new + (run.n_pending + run.n_running if run else 0)
    ceiling = compute_ceiling(answers, find_largest_request(answers)) if to_do else Decimal(0)
    return GraderEstimate(needed, to_do, ceiling, compute_expected(answers, ceiling))


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


def compute_expected(answers: AnswerSelection, ceiling: Decimal | None) -> Expectation | None:
    """Return the expected cost of a call from the calls of this judge, else of its model, else of all judges."""
    judges = Run.objects.filter(experiment=answers.experiment, condition__stage=Condition.Stage.JUDGE)
    runs = list(judges.with_reuse().select_related("condition"))
    own = answers.condition.judge_condition_id if answers.condition else None
    return costs.compute_expected_cost(
        get_prices(answers),
        ceiling,
        own=compute_observed_tokens(run for run in runs if run.condition_id == own),
        group=compute_observed_tokens(
            run for run in runs if run.condition.model_id == answers.grader.language_model_id
        ),
        pooled=compute_observed_tokens(runs),
    )


def forecast_judging(experiment: Experiment, wave_label: str, answers: int, longest: int | None) -> CostEstimate:
    """Return the estimate of verdicts on `answers` answers of a wave, without the verdicts already requested.

    `longest` is the longest answer in tokens, or None if answers have no limit.
    Without a limit, a judge that is not free has no cost ceiling.
    """
    wave = experiment.waves.filter(label=wave_label).first() or Wave(experiment=experiment, label=wave_label)
    graders = Grader.objects.of_design(experiment)
    parts = [_forecast_part(AnswerSelection(experiment, grader, wave), answers, longest) for grader in graders]
    return sum_estimates(experiment, graders, parts)


def _forecast_part(selection: AnswerSelection, answers: int, longest: int | None) -> GraderEstimate:
    run = selection.find_run()
    # The number of verdicts: one per answer; for pairs, one per answer, other condition and order.
    experiment = selection.experiment
    cells = experiment.language_models.count() * experiment.prompts.count() * experiment.samplers.count()
    needed = answers * (cells - 1) if selection.in_pairs else answers
    to_do = max(0, needed - (run.n_trials if run else 0)) + (run.n_pending + run.n_running if run else 0)
    ceiling = _forecast_ceiling(selection, longest) if to_do else Decimal(0)
    return GraderEstimate(needed, to_do, ceiling, compute_expected(selection, ceiling))


def _forecast_ceiling(selection: AnswerSelection, longest: int | None) -> Decimal | None:
    if longest is None:
        return Decimal(0) if selection.grader.language_model.prices.is_free else None
    return compute_ceiling(selection, find_largest_request(selection, longest * BYTES_A_TOKEN))
