"""The registry of figures: every figure that an experiment has. A new kind needs a provider in this list."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from grading_app.publish.figures.agreement_figures import list_agreement_figures, list_length_figures
from grading_app.publish.figures.calibration_figure import list_calibration_figures
from grading_app.publish.figures.figure_source import FigureSource
from grading_app.publish.figures.kinds import PaperFigure
from grading_app.publish.figures.plane_figures import list_plane_figures
from grading_app.publish.figures.rating_figures import list_rating_figures
from grading_app.publish.figures.reliability_figure import list_reliability_figures
from grading_app.publish.figures.site_figures import list_analysis_figures, list_board_figures, list_frame_figures
from grading_app.publish.figures.space_figures import list_space_figures

Provider = Callable[[FigureSource], Iterator[PaperFigure]]
PROVIDERS: tuple[Provider, ...] = (
    list_frame_figures,
    list_board_figures,
    list_rating_figures,
    list_plane_figures,
    list_reliability_figures,
    list_analysis_figures,
    list_calibration_figures,
    list_agreement_figures,
    list_length_figures,
    list_space_figures,
)


def list_figures(source: FigureSource) -> list[PaperFigure]:
    """Return the figures of the experiment for the choices in the address. Nothing is drawn."""
    return [figure for provider in PROVIDERS for figure in provider(source)]


def find_figure(source: FigureSource, name: str) -> PaperFigure | None:
    """Return one figure by its name. Only the providers before it are asked."""
    return next((figure for provider in PROVIDERS for figure in provider(source) if figure.name == name), None)
