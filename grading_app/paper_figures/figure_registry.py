"""The registry of figures: every figure that an experiment has. A new kind needs a provider in this list."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from grading_app.paper_figures.agreement_figures import agreement_figures, length_figures
from grading_app.paper_figures.calibration_figure import calibration_figures
from grading_app.paper_figures.figure_source import FigureSource
from grading_app.paper_figures.kinds import PaperFigure
from grading_app.paper_figures.plane_figures import plane_figures
from grading_app.paper_figures.rating_figures import rating_figures
from grading_app.paper_figures.reliability_figure import reliability_figures
from grading_app.paper_figures.site_figures import analysis_figures, board_figures, frame_figures
from grading_app.paper_figures.space_figures import space_figures

Provider = Callable[[FigureSource], Iterator[PaperFigure]]
PROVIDERS: tuple[Provider, ...] = (
    frame_figures,
    board_figures,
    rating_figures,
    plane_figures,
    reliability_figures,
    analysis_figures,
    calibration_figures,
    agreement_figures,
    length_figures,
    space_figures,
)


def list_figures(source: FigureSource) -> list[PaperFigure]:
    """Return the figures of the experiment for the choices in the address. Nothing is drawn."""
    return [figure for provider in PROVIDERS for figure in provider(source)]


def find_figure(source: FigureSource, name: str) -> PaperFigure | None:
    """Return one figure by its name. Only the providers before it are asked."""
    return next((figure for provider in PROVIDERS for figure in provider(source) if figure.name == name), None)
