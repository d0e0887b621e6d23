"""The cost of a design's judges, which run after the answers, under the same budget."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from runs_app.grading_interface import grading
from runs_app.planning.design import Design

if TYPE_CHECKING:
    from runs_app.pricing.estimated_costs import Estimate


def add_judge_costs(answers: Estimate, design: Design, wave_label: str, pilot: int | None) -> Estimate:
    """Return the estimate plus the expected verdicts, each at its ceiling and its expected cost."""
    experiment = design.experiment
    if not (experiment.pk and experiment.graders):
        return answers
    sampler_ids = [cell.sampler.key for cell in design.cells]
    limits = [sampler.output_ceiling() for sampler in design.samplers if sampler.pk in sampler_ids]
    limits += [model.max_output_tokens for model in design.models] if None in limits else []
    longest = max((limit for limit in limits if limit is not None), default=None)
    judges: Estimate = grading().forecast_judges(experiment, wave_label, pilot or answers.trials, longest)
    listed = {price.model for price in answers.prices}
    return replace(
        answers,
        verdicts=judges.to_do,
        ceiling_usd=_add(answers.ceiling_usd, judges.ceiling_usd),
        expected_usd=_add(answers.expected_usd, judges.expected_usd),
        prices=[*answers.prices, *(price for price in judges.prices if price.model not in listed)],
        unknown_prices=list(dict.fromkeys([*answers.unknown_prices, *judges.unknown_prices])),
        problems=[*answers.problems, *judges.problems],
        warnings=[*answers.warnings, *judges.warnings],
    )


def _add(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    return None if first is None or second is None else first + second
