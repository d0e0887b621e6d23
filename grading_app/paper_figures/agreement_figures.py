"""The figures of the agreement page and of the length page, for the choices in the address."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from grading_app.comparison import plots
from grading_app.comparison.comparison_cache import AGREEMENT, ComparisonQuery, Roles, roles_of
from grading_app.comparison.query import Question, QuestionForm
from grading_app.models.scales import CHOICE
from grading_app.paper_figures.figure_source import FigureSource
from grading_app.paper_figures.kinds import PaperFigure, text_table
from grading_app.reports import length_plot
from grading_app.reports.cached_aggregates import get
from grading_app.reports.length_bias import LENGTHS, Lengths
from grading_app.reports.plot_style import WIDE
from grading_app.reports.verdict_aggregates import get_by_condition

if TYPE_CHECKING:
    from grading_app.comparison.agreement_report import Compared


def agreement_figures(source: FigureSource) -> Iterator[PaperFigure]:
    """Yield the plot of differences and the confusion matrix; none where nobody was compared."""
    question = QuestionForm(source.data, source.experiment).question()
    if question is None or not question.raters:
        return
    roles = roles_of(question, {name: str(value) for name, value in source.data.items()})
    compared = get(AGREEMENT, source.experiment.pk, ComparisonQuery(question, roles)).value
    if compared is None:
        source.is_waiting = True
        return
    yield from compared_figures(question, roles, compared)


def compared_figures(question: Question, roles: Roles, compared: Compared) -> Iterator[PaperFigure]:
    """Yield the figures of a comparison."""
    for name, picture in make_pictures(question, roles, compared, WIDE).items():
        yield PaperFigure(
            f"agreement-{name}",
            picture.title,
            partial(_draw, question, roles, compared, name),
            partial(text_table, f"agreement-{name}", picture.title, picture.table),
            picture.caption,
            picture.alt,
            page="experiment_agreement",
            in_report=True,
        )


def _draw(question: Question, roles: Roles, compared: Compared, name: str, width: int) -> Any:
    return make_pictures(question, roles, compared, width)[name].draw()


def make_pictures(question: Question, roles: Roles, compared: Compared, width: int) -> dict[str, plots.Picture]:
    """Return the figures of a comparison with their texts and numbers. They are drawn only on request."""
    measured, found = compared.measured, {}
    if measured and measured.against and measured.against.limits and roles.judge:
        found["differences"] = plots.differences(measured.against.limits, roles.judge.label, width)
    if measured and measured.confusion and roles.pair:
        names = (roles.pair[0].label, roles.pair[1].label)
        words = {value: name.removeprefix("the ") for value, name in CHOICE.points} if question.in_pairs else None
        found["confusion"] = plots.confusion(measured.confusion, names, width, words)
    return found


def length_figures(source: FigureSource) -> Iterator[PaperFigure]:
    """Yield score by length of the answer for the grade condition in the address (`by`), or the first."""
    described = source.experiment.grade_conditions.select_related("grader", "rubric", "panel", "judge_condition")
    conditions = list(described.prefetch_related("panel__graders__rubric").order_by("pk"))
    wanted = source.data.get("by", "")
    chosen = next((one for one in conditions if wanted in ("", str(one.pk))), None)
    lengths = get_by_condition(LENGTHS, [chosen], conditions)[chosen.pk].value if chosen else None
    if chosen is None or not isinstance(lengths, Lengths) or not lengths.bins:
        return
    labels = source.frames.labels
    yield PaperFigure(
        "length",
        f"{chosen.label}: score by length of the answer",
        partial(length_plot.draw, lengths, labels),
        lambda: text_table("length", "Score by length of the answer", length_plot.table(lengths, labels)),
        "Mean score of the answers of similar length, for each condition.",
        f"Mean score by length of the answer, scored by {chosen.label}. The table holds the numbers.",
        page="grading_length",
    )
