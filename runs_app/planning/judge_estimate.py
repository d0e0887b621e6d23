"""The cost of a design's judges. They run once the answers are recorded, under the same budget."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from runs_app.grading_interface import grading
from runs_app.planning.design import Design

if TYPE_CHECKING:
    from runs_app.pricing.estimated_costs import Estimate


def add_judge_costs(found: Estimate, design: Design, wave_label: str, pilot: int | None) -> Estimate:
    """Return the estimate plus the expected verdicts, each at its ceiling and its expected cost."""
    experiment = design.experiment
    if not (experiment.pk and experiment.graders):
        return found
    asked = [cell.sampler.key for cell in design.cells]
    limits = [sampler.output_ceiling() for sampler in design.samplers if sampler.pk in asked]
    limits += [model.max_output_tokens for model in design.models] if None in limits else []
    longest = max((limit for limit in limits if limit is not None), default=None)
    judges: Estimate = grading().forecast_judges(experiment, wave_label, pilot or found.trials, longest)
    own = {price.model for price in found.prices}
    return replace(
        found,
        verdicts=judges.to_do,
        ceiling_usd=_sum(found.ceiling_usd, judges.ceiling_usd),
        expected_usd=_sum(found.expected_usd, judges.expected_usd),
        prices=[*found.prices, *(price for price in judges.prices if price.model not in own)],
        unknown_prices=list(dict.fromkeys([*found.unknown_prices, *judges.unknown_prices])),
        problems=[*found.problems, *judges.problems],
        warnings=[*found.warnings, *judges.warnings],
    )


def _sum(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else one + other
