"""The expected cost of a design's judges for answers that do not exist yet."""

from __future__ import annotations

from decimal import Decimal

from grading_app.judging import grader_lookup
from grading_app.judging.answer_selection import AnswerSelection
from grading_app.judging.judging_costs import (
    GraderEstimate,
    compute_ceiling,
    compute_expected,
    find_largest_request,
    sum_estimates,
)
from runs_app.models import Experiment, Wave
from runs_app.pricing.estimated_costs import CostEstimate

BYTES_A_TOKEN = 3  # The inverse of the ratio in the token estimate.


def forecast_judging(experiment: Experiment, wave_label: str, answers: int, longest: int | None) -> CostEstimate:
    """Return the estimate of verdicts on `answers` answers of a wave, without the verdicts already requested.

    `longest` is the longest answer in tokens, or None if answers have no limit.
    Without a limit, a judge that is not free has no cost ceiling.
    """
    wave = experiment.waves.filter(label=wave_label).first() or Wave(experiment=experiment, label=wave_label)
    graders = grader_lookup.find_design_graders(experiment)
    parts = [_forecast_part(AnswerSelection(experiment, grader, wave), answers, longest) for grader in graders]
    return sum_estimates(experiment, graders, parts)


def _forecast_part(selection: AnswerSelection, answers: int, longest: int | None) -> GraderEstimate:
    run = selection.find_run()
    # The number of verdicts: one per answer; for pairs, one per answer, other condition and order.
    experiment = selection.experiment
    cells = experiment.language_models.count() * experiment.prompts.count() * experiment.samplers.count()
    needed = answers * (cells - 1) if selection.in_pairs else answers
    to_do = max(0, needed - (run.n_trials if run else 0)) + (run.n_pending + run.n_running if run else 0)
    ceiling = _compute_ceiling(selection, longest) if to_do else Decimal(0)
    return GraderEstimate(needed, to_do, ceiling, compute_expected(selection, ceiling))


def _compute_ceiling(selection: AnswerSelection, longest: int | None) -> Decimal | None:
    if longest is None:
        return Decimal(0) if selection.grader.language_model.prices.is_free else None
    return compute_ceiling(selection, find_largest_request(selection, longest * BYTES_A_TOKEN))
