"""Figures from the rows of an experiment: functions from data to `Figure`, a module for each picture or subject.

The registry below lists those of the Results page, in its order. They need the frames of the page alone. The registry
of all figures, of the package for papers, includes them.
"""

from collections.abc import Callable, Mapping

from grading_app.results.figure import Figure
from grading_app.results.figures import accuracy, categories, norms, points, ratings, scores
from grading_app.results.frames import Frames

RESULTS_FIGURES: Mapping[str, Callable[[Frames], Figure | None]] = {
    "ratings": ratings.make_figure,
    "norms": norms.make_figure,
    "scores": scores.make_figure,
    "accuracy": accuracy.make_figure,
    "points": points.make_figure,
    "categories": categories.make_figure,
}


def list_results_figures(frames: Frames) -> list[Figure]:
    """Return the figures for which the experiment has data. Nothing is drawn."""
    return [figure for make in RESULTS_FIGURES.values() if (figure := make(frames))]
