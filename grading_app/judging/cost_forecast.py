"""What the judges of a design will cost on answers that are still to come."""

from __future__ import annotations

from decimal import Decimal

from grading_app.judging import grader_lookup
from grading_app.judging.answer_selection import Answers
from grading_app.judging.judging_costs import Part, ceiling_of, estimate_of, expected_of, largest_request
from runs_app.models import Experiment, Wave
from runs_app.planning.cost_estimate import Estimate

BYTES_A_TOKEN = 3  # As the estimate of tokens has it, the other way round.


def judges_foreseen(experiment: Experiment, wave_label: str, answers: int, longest: int | None) -> Estimate:
    """Verdicts on `answers` answers of a wave, less those that were asked for; the longest answer is in tokens.

    Where no limit of the answers is known, a judge that is not free has no ceiling either.
    """
    wave = experiment.waves.filter(label=wave_label).first() or Wave(experiment=experiment, label=wave_label)
    graders = grader_lookup.of_design(experiment)
    parts = [_part(Answers(experiment, grader, wave), answers, longest) for grader in graders]
    return estimate_of(experiment, graders, parts)


def _part(found: Answers, answers: int, longest: int | None) -> Part:
    run = found.run()
    wanted = _verdicts(found, answers)
    to_do = max(0, wanted - (run.n_trials if run else 0)) + (run.n_pending + run.n_running if run else 0)
    ceiling = _ceiling(found, longest) if to_do else Decimal(0)
    return Part(wanted, to_do, ceiling, expected_of(found, ceiling))


def _verdicts(found: Answers, answers: int) -> int:
    """One an answer; or of pairs, each answer with those of all other conditions, in both orders."""
    experiment = found.experiment
    cells = experiment.language_models.count() * experiment.prompts.count() * experiment.samplers.count()
    return answers * (cells - 1) if found.in_pairs else answers


def _ceiling(found: Answers, longest: int | None) -> Decimal | None:
    if longest is None:
        return Decimal(0) if found.grader.language_model.prices.free else None
    return ceiling_of(found, largest_request(found, longest * BYTES_A_TOKEN))
