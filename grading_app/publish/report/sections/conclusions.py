"""The abstract and a results paragraph to paste into a paper: the conclusions of the Results page, with numbers."""

from __future__ import annotations

from evalsite.lib.text.number_format import format_count
from grading_app.publish.report.document import Block, Span, make_paragraph, make_sentence
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import count_noun, join_words
from grading_app.results import statistic_format
from grading_app.results.frames import load_facets
from grading_app.results.results_page import draw_conclusions
from grading_app.results.scores import Measure

MAX_CONDITIONS = 8
MAX_NAMES = 4
"""The number of models and of measures that the abstract names; of more it states the number."""


def write_abstract(source: ReportSource) -> list[Block | None]:
    """Return five sentences: the design, the measures, the first two conclusions, and what the numbers rest on."""
    experiment, conditions = source.experiment, source.generation_conditions
    models = sorted({condition.model.name for condition in conditions})
    axes = [count_noun(len(set(pks)), noun) for noun, pks in (
        ("prompt", [condition.prompt_id for condition in conditions]),
        ("sampler", [condition.sampler_id for condition in conditions]),
    ) if len(set(pks)) > 1]  # fmt: skip
    design = make_sentence(
        f"We presented {count_noun(experiment.dataset.active_count, 'item')} of the dataset {experiment.dataset} to "
        f"{_name(models, 'model')}{f' with {join_words(axes)}' if axes else ''}. ",
        source.get_url("experiment_detail"),
    )
    if not source.measures:
        return [make_paragraph(design, "No answer has a score yet.")]
    page = source.get_url("experiment_results")
    labels = [measure.label for measure in source.board.measures]
    measures = make_sentence(f"The {_name(labels, 'measure', is_first=True)}. ", page)
    found = _draw_conclusions(source)
    second = found[1:2] or _describe_best_condition(source)
    scores = [row.scores[source.board.measures[0].key] for row in source.board.rows]
    n_scored, n_planned = sum(score.n for score in scores), sum(score.planned for score in scores)
    basis = make_sentence(
        f"{format_count(n_scored)} of {count_noun(n_planned, 'planned answer')} have a score on {labels[0]}; intervals "
        "are 95 % confidence intervals with items as clusters.",
        page,
    )
    main = [make_sentence(f"{text} ", page) for text in (*found[:1], *second)]
    return [make_paragraph(design, measures, *main, basis)]


def write_results_paragraph(source: ReportSource) -> list[Block | None]:
    """Return the means of the conditions, every conclusion with its test, and the correlations with human norms."""
    if not source.measures:
        return [make_paragraph("No answer has a score yet.", tone="note")]
    page = source.get_url("experiment_results")
    board, measure = source.board, source.board.measures[0]
    means = [
        f"{row.label} {_format_mean(measure, score.mean, score.interval)}"
        for row in board.rows
        if (score := row.scores[measure.key]).mean is not None
    ]
    further = len(means) - MAX_CONDITIONS
    left_out = f", and {count_noun(further, 'further condition')}" if further > 0 else ""
    spans = [make_sentence(f"Means on {measure.label} were: {'; '.join(means[:MAX_CONDITIONS])}{left_out}. ", page)]
    spans += [make_sentence(f"{text} ", page) for text in _draw_conclusions(source)]
    spans += [_describe_closeness(source, one) for one in board.measures if one.key in board.closeness]
    return [make_paragraph(*spans)]


def _draw_conclusions(source: ReportSource) -> list[str]:
    """Return a sentence for each factor: the model first, with means, interval and test in brackets."""
    conclusions = draw_conclusions(source.board, load_facets(source.experiment, is_brief=True))
    texts = []
    for conclusion in conclusions:
        subject = f"{conclusion.subject}: " if ":" in conclusion.subject else ""
        texts.append(f"{subject}{conclusion.sentence.removesuffix('.')} ({conclusion.numbers}).".replace(") (", "; "))
    return texts


def _describe_best_condition(source: ReportSource) -> list[str]:
    measure = source.board.measures[0]
    rows = [row for row in source.board.rows if row.scores[measure.key].mean is not None]
    if len(rows) < 2:
        return []
    best = max(rows, key=lambda row: row.scores[measure.key].mean or 0.0)
    score = best.scores[measure.key]
    mean = _format_mean(measure, score.mean, score.interval)
    return [f"The highest mean on {measure.label} was that of {best.label}: {mean}."]


def _describe_closeness(source: ReportSource, measure: Measure) -> Span:
    """Return the correlation of each condition with people, with its interval."""
    found = source.board.closeness[measure.key].conditions
    texts = [
        f"{row.label} r = {statistic_format.format_coefficient(near.r)} "
        f"({statistic_format.format_coefficient_interval(near.low, near.high)}, {count_noun(near.items, 'item')})"
        for row in source.board.rows
        if (near := found.get(row.condition)) and near.r is not None
    ]
    page = source.get_url("experiment_results")
    return (
        make_sentence(f"Correlations with people on {measure.label}: {'; '.join(texts)}. ", page) if texts else Span("")
    )


def _format_mean(measure: Measure, mean: float | None, interval: tuple[float, float] | None) -> str:
    """Return `90.6 % (81.0 to 95.6 %)`."""
    text = statistic_format.format_mean(mean, measure.is_share)
    return f"{text} ({statistic_format.format_mean_interval(*interval, measure.is_share)})" if interval else text


def _name(names: list[str], noun: str, *, is_first: bool = False) -> str:
    """Return the names with their noun, or their number if they are many. is_first: with a verb after the noun."""
    if not is_first:
        return join_words(names) if len(names) <= MAX_NAMES else count_noun(len(names), noun)
    shown = names if len(names) <= MAX_NAMES else [*names[:MAX_NAMES], f"{len(names) - MAX_NAMES} more"]
    return f"{noun} is {shown[0]}" if len(names) == 1 else f"{noun}s are {join_words(shown)}"
