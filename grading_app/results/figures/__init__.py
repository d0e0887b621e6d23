"""The figures of an experiment, in the order of the page. To add a figure, add a module here and list it below."""

from grading_app.results.figures import accuracy, categories, distributions, norms, points, scores
from grading_app.results.figures.kinds import AnyFigure

FIGURES: dict[str, AnyFigure] = {
    module.FIGURE.name: module.FIGURE for module in (distributions, norms, scores, accuracy, points, categories)
}
