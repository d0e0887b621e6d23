"""The size and cost of a design before it is planned, for the form, the design page and the launch."""

from __future__ import annotations

from dataclasses import dataclass

from runs_app.models import Experiment
from runs_app.planning.conditions import Facet, get_condition_hash
from runs_app.planning.cost_estimate import estimate_design
from runs_app.planning.design import Design
from runs_app.planning.power import DetectableEffect, compute_detectable_effect
from runs_app.pricing.costs import CostEstimate


@dataclass(frozen=True, slots=True)
class DesignSummary:
    """The size of a crossing and its cost estimate."""

    conditions: int
    items: int
    dimensions: int
    samples: int
    estimate: CostEstimate
    is_over_budget: bool
    needs_confirmation: bool
    policy_text: str = ""

    @property
    def problems(self) -> list[str]:
        return self.estimate.problems

    @property
    def warnings(self) -> list[str]:
        return self.estimate.warnings

    @property
    def detectable(self) -> DetectableEffect | None:
        """Return the detectable effect under the default assumptions. The design page can change them."""
        return compute_detectable_effect(self.items, self.samples) if self.samples > 0 else None

    @property
    def all_from_cache(self) -> bool:
        """Return whether other experiments probably have the answers of all remaining trials."""
        return 0 < self.estimate.to_do <= self.estimate.foreseen

    @property
    def coverage_percent(self) -> int:
        return int(100 * self.estimate.coverage)


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell of a crossing. A planned cell can no longer change."""

    id: str
    model: Facet
    prompt: Facet
    sampler: Facet
    planned: bool


def summarise_experiment(
    experiment: Experiment, *, wave_label: str = "", pilot: int | None = None, policy: str | None = None
) -> DesignSummary:
    return summarise_design(Design.load(experiment, policy=policy), wave_label=wave_label, pilot=pilot)


def summarise_design(design: Design, *, wave_label: str = "", pilot: int | None = None) -> DesignSummary:
    """Return the summary of a design. Its experiment may be unsaved."""
    estimate = estimate_design(design, wave_label=wave_label, pilot=pilot)
    return DesignSummary(
        conditions=len(design.cells),
        items=design.n_planned_items,
        dimensions=len(design.dimensions),
        samples=design.samples,
        policy_text=design.policy_text,
        estimate=estimate,
        is_over_budget=design.experiment.may_exceed_budget(estimate.ceiling_usd),
        needs_confirmation=design.experiment.needs_confirmation(estimate.ceiling_usd),
    )


def list_cells(design: Design) -> list[CellRow]:
    """Return the cells of the current design, planned or not. Conditions that left the design are not included.

    An imported experiment may have several runs of one cell. It cannot change, so all its conditions are included.
    """
    conditions = {
        get_condition_hash(condition.condition_id): condition
        for condition in design.experiment.answer_conditions.select_related("model", "prompt", "sampler")
    }
    rows = {
        (short := get_condition_hash(cell.condition_id)): CellRow(
            cell.condition_id, cell.model, cell.prompt, cell.sampler, short in conditions
        )
        for cell in design.cells
    }
    if design.experiment.imported_from:
        for short, condition in conditions.items():
            model, prompt, sampler = (
                Facet(row.name if row else "", {}) for row in (condition.model, condition.prompt, condition.sampler)
            )
            rows.setdefault(short, CellRow(condition.condition_id, model, prompt, sampler, True))
    return list(rows.values())
