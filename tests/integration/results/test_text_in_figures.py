"""The texts of every figure: at least 12 pixels high, and none covers another or a point."""

from itertools import combinations

import pytest
from django.http import QueryDict
from matplotlib.transforms import Bbox

from grading_app.publish.figures.figure_set import iterate_figures
from grading_app.results import plot_style
from grading_app.scoring.grading import grade
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.factories.studies import make_rated_study
from tests.integration.results.test_figures_for_papers import list_shown_texts

pytestmark = pytest.mark.django_db


def make_graded_study():
    """Return two models and two prompts over 24 questions in three categories, graded by a rule and a judge."""
    items = [{"key": f"q-{n:02}", "input": f"{n} + {n}?", "target": str(2 * n), "category": f"group {n % 3}"}
             for n in range(24)]  # fmt: skip
    models = [factories.make_model(name, output_price=price) for name, price in (("sim-large", 10), ("sim-small", 0.5))]
    prompts = [factories.make_prompt(name, user=f"{name}: {{{{input}}}}") for name in ("plain", "step-by-step")]
    experiment = factories.make_experiment(
        "graded", dataset=factories.make_dataset("sums", items), models=models, prompts=prompts,
        scorers=["exact_match"],
    )  # fmt: skip
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        limit = (22, 23, 12, 14)[number]
        factories.plan_trials(
            run, answer=lambda item, *_, limit=limit: {"answer": item.target if item.position < limit else "no idea"}
        )
    grade(experiment, by="a test")
    make_gradings(
        experiment, "strict", lambda trial: float(trial.answer != "no idea" and trial.item.position != 3),
        rubric=make_scale_rubric("strict-rubric", low=0, high=1),
    )  # fmt: skip
    return experiment


@pytest.mark.slow
@pytest.mark.parametrize("width", [plot_style.NARROW, plot_style.WIDE])
@pytest.mark.parametrize("make_study", [make_graded_study, make_rated_study])
def test_texts_are_large_and_cover_neither_texts_nor_points(make_study, width):
    problems = []
    for figure in iterate_figures(make_study(), QueryDict()):
        drawing = figure.draw(width)
        texts = list_shown_texts(drawing)
        small = [text.get_text() for text in texts if text.get_fontsize() < plot_style.SMALL - 0.01]
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
        covered = [(a, b) for (a, first), (b, second) in combinations(boxes, 2) if covers(first, second)]
        points = [place for axes in drawing.axes for line in axes.lines if line.get_marker() != "None"
                  for place in axes.transData.transform(line.get_xydata())]  # fmt: skip
        hidden = [text for text, box in boxes for place in points if box.contains(*place)]
        problems += [(figure.name, "hides a point", text) for text in hidden]
        problems += [(figure.name, "small", text) for text in small]
        problems += [(figure.name, "covers", *pair) for pair in covered]
    assert not problems, "\n".join(map(str, problems))


def covers(first: Bbox, second: Bbox) -> bool:
    """Return whether the boxes have more than a pixel in common in both directions."""
    shared = Bbox.intersection(first, second)
    return shared is not None and min(shared.width, shared.height) > 1
