"""The figures of the agreement page and of the length page, for the choices in the address."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from grading_app.models.scales import CHOICE
from grading_app.publish.figures.figure_source import FigureSource
from grading_app.publish.figures.kinds import PaperFigure, make_text_table
from grading_app.raters import length_plot, rater_plots
from grading_app.raters.agreement_cache import AGREEMENT, AgreementQuery, RaterRoles, assign_roles
from grading_app.raters.length_bias import LENGTHS, MIN_BIN_SIZE, ScoresByLength
from grading_app.raters.rating_selection import RatingSelection, RatingSelectionForm
from grading_app.raters.verdict_aggregates import get_aggregates_by_condition
from grading_app.results.cached_aggregates import get_aggregate
from grading_app.results.plot_style import WIDE

MAX_GRADERS = 12  # Beyond it, `by` in the address chooses one.

if TYPE_CHECKING:
    from grading_app.raters.agreement_report import AgreementResult


def list_agreement_figures(source: FigureSource) -> Iterator[PaperFigure]:
    """Yield the plot of differences and the confusion matrix; none where nobody was compared."""
    selection = RatingSelectionForm(source.data, source.experiment).get_selection()
    if selection is None or not selection.raters:
        return
    roles = assign_roles(selection, {name: str(value) for name, value in source.data.items()})
    result = get_aggregate(AGREEMENT, source.experiment.pk, AgreementQuery(selection, roles)).value
    if result is None:
        source.is_waiting = True
        return
    yield from list_comparison_figures(selection, roles, result)


def list_comparison_figures(
    selection: RatingSelection, roles: RaterRoles, result: AgreementResult
) -> Iterator[PaperFigure]:
    """Yield the figures of a comparison."""
    for name, picture in make_pictures(selection, roles, result, WIDE).items():
        yield PaperFigure(
            f"agreement-{name}",
            picture.title,
            partial(_draw, selection, roles, result, name),
            partial(make_text_table, f"agreement-{name}", picture.title, picture.table),
            picture.caption,
            picture.alt,
            page="experiment_agreement",
            in_report=True,
        )


def _draw(selection: RatingSelection, roles: RaterRoles, result: AgreementResult, name: str, width: int) -> Any:
    return make_pictures(selection, roles, result, width)[name].draw()


def make_pictures(
    selection: RatingSelection, roles: RaterRoles, result: AgreementResult, width: int
) -> dict[str, rater_plots.RaterPlot]:
    """Return the figures of a comparison with their texts and numbers. They are drawn only on request."""
    report, plots = result.report, {}
    if report and report.judge_comparison and report.judge_comparison.limits and roles.judge:
        plots["differences"] = rater_plots.plot_differences(report.judge_comparison.limits, roles.judge.label, width)
    if report and report.confusion and roles.pair:
        names = (roles.pair[0].label, roles.pair[1].label)
        words = {value: name.removeprefix("the ") for value, name in CHOICE.points} if selection.in_pairs else None
        plots["confusion"] = rater_plots.plot_confusion(report.confusion, names, width, words)
    return plots


def list_length_figures(source: FigureSource) -> Iterator[PaperFigure]:
    """Yield score by length of the answer for the grade condition in the address (`by`), or for each one."""
    queryset = source.experiment.grade_conditions.select_related("grader", "rubric", "panel", "judge_condition")
    conditions = list(queryset.prefetch_related("panel__graders__rubric").order_by("pk"))
    key = source.data.get("by", "")
    selected = [condition for condition in conditions if key in ("", str(condition.pk))][:MAX_GRADERS]
    by_condition = get_aggregates_by_condition(LENGTHS, selected, conditions)
    name = "length"
    for condition in selected:
        lengths = by_condition[condition.pk].value
        if isinstance(lengths, ScoresByLength) and lengths.bins:
            yield _make_length_figure(name, condition.label, lengths, source.frames.labels)
            name = f"length-{condition.pk}"


def _make_length_figure(name: str, grader: str, lengths: ScoresByLength, labels: dict[int, str]) -> PaperFigure:
    title = f"{grader}: score by length of the answer"
    return PaperFigure(
        name,
        title,
        partial(length_plot.draw_length_plot, lengths, labels),
        lambda: make_text_table(name, title, length_plot.make_length_table(lengths, labels)),
        f"Mean score of answers of similar length, by condition. Groups of under {MIN_BIN_SIZE} answers are left out.",
        f"Mean score by length of the answer, scored by {grader}. The table holds the numbers.",
        page="grading_length",
    )
