"""What a design would make and cost, before anything is planned: for the form, the design page and the launch."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from runs_app.costs import Prices
from runs_app.crossed import Design
from runs_app.crossing import Facet, identity
from runs_app.models import Experiment


@dataclass(frozen=True, slots=True)
class ModelPrice:
    name: str
    prices: Prices


@dataclass(frozen=True, slots=True)
class Outlook:
    """`ceiling` is US dollars for all trials at their most expensive; None where a price or a limit is unknown."""

    conditions: int
    items: int
    dimensions: int
    samples: int
    trials: int
    ceiling: Decimal | None
    prices: list[ModelPrice]
    unknown_prices: list[str]
    problems: list[str]
    warnings: list[str]

    def needs_confirmation(self, experiment: Experiment) -> bool:
        """A cost above what the design says to confirm, or a cost that nobody knows."""
        if self.ceiling is None:
            return True
        return experiment.confirm_above_usd is not None and self.ceiling > experiment.confirm_above_usd

    def is_over_budget(self, experiment: Experiment) -> bool:
        """The budget may end the runs before all trials are made."""
        return experiment.max_usd is not None and self.ceiling is not None and self.ceiling > experiment.max_usd


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell of the crossing, and whether it is planned, and so frozen."""

    id: str
    model: Facet
    prompt: Facet
    sampler: Facet
    planned: bool


def cells_of(design: Design) -> list[CellRow]:
    """The design as it stands, planned or not; what was planned and left the design since is not in it."""
    planned = {identity(known) for known in design.experiment.conditions.values_list("condition_id", flat=True)}
    return [
        CellRow(cell.condition_id, cell.model, cell.prompt, cell.sampler, identity(cell.condition_id) in planned)
        for cell in design.cells
    ]


def outlook_of(experiment: Experiment) -> Outlook:
    return outlook(Design.of(experiment))


def outlook(design: Design) -> Outlook:
    """`design` may be of an experiment that is not saved yet, with its rows as they were chosen."""
    per_cell = design.trials_per_cell
    ceilings = [design.ceiling(cell) for cell in design.cells]
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    complete = bool(ceilings) and len(known) == len(ceilings)
    return Outlook(
        conditions=len(design.cells),
        items=design.n_items,
        dimensions=len(design.dimensions),
        samples=design.experiment.samples,
        trials=per_cell * len(design.cells),
        ceiling=per_cell * sum(known, Decimal(0)) if complete else None,
        prices=[ModelPrice(model.name, model.prices) for model in design.models],
        unknown_prices=design.unknown_prices,
        problems=design.problems(),
        warnings=design.warnings(),
    )
