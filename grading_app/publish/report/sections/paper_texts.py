"""Texts to paste into a paper: abstract, methods paragraph and results paragraph. Their numbers come from rows."""

from __future__ import annotations

from evalsite.lib.text.number_format import format_count
from grading_app.models import GradeCondition
from grading_app.publish.report.document import (
    Block,
    Span,
    count_noun,
    format_days,
    join_words,
    make_paragraph,
    make_sentence,
)
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.sections.appendix import NAMED, describe_stopping_rule
from grading_app.results import statistic_format
from grading_app.results.frames import load_facets
from grading_app.results.results_page import draw_conclusions
from grading_app.results.scores import ConditionScore, Measure
from grading_app.statistics.condition_pairs import TOLERANCE

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
    second = found[1:2] or _describe_highest_mean(source)
    scores = [row.scores[source.board.measures[0].key] for row in source.board.rows]
    n_scored, n_planned = sum(score.n for score in scores), sum(score.planned for score in scores)
    basis = make_sentence(
        f"{format_count(n_scored)} of {count_noun(n_planned, 'planned answer')} have a score on {labels[0]}; intervals "
        "are 95 % confidence intervals with items as clusters.",
        page,
    )
    extremes = (extreme.fact for _, extreme in source.board.extremes)
    main = [make_sentence(f"{text} ", page) for text in (*found[:1], *second, *extremes)]
    return [make_paragraph(design, measures, *main, basis)]


def write_results_paragraph(source: ReportSource) -> list[Block | None]:
    """Return the means of the conditions, every conclusion with its test, and the correlations with human norms."""
    if not source.measures:
        return [make_paragraph("No answer has a score yet.", tone="note")]
    page = source.get_url("experiment_results")
    board, measure = source.board, source.board.measures[0]
    means = [
        f"{row.label} {_format_mean(measure, score)}"
        for row in board.rows
        if (score := row.scores[measure.key]).mean is not None
    ]
    further = len(means) - MAX_CONDITIONS
    left_out = f", and {count_noun(further, 'further condition')}" if further > 0 else ""
    spans = [make_sentence(f"Means on {measure.label} were: {'; '.join(means[:MAX_CONDITIONS])}{left_out}. ", page)]
    spans += [make_sentence(f"{text} ", page) for text in _draw_conclusions(source)]
    spans += [make_sentence(f"{extreme.fact} ", page) for _, extreme in board.extremes]
    if len(board.rows) > 1 or len(board.rated_with_norms) > 1:  # Else the conclusion is on this correlation.
        spans += [_describe_closeness(source, one) for one in board.measures if one.key in board.closeness]
    return [make_paragraph(*spans)]


def _draw_conclusions(source: ReportSource) -> list[str]:
    """Return a sentence for each factor: the model first, with means, interval, test and items in brackets."""
    conclusions = draw_conclusions(source.board, load_facets(source.experiment, is_brief=True))
    texts = []
    for conclusion in conclusions:
        subject = f"{conclusion.subject}: " if ":" in conclusion.subject else ""
        numbers = "; ".join(filter(None, (conclusion.numbers, conclusion.items)))
        claim = f"{subject}{conclusion.claim.removesuffix('.')} ({numbers}).".replace(") (", "; ")
        texts.append(f"{claim} {conclusion.caveat}".strip())
    return texts


def _describe_highest_mean(source: ReportSource) -> list[str]:
    """Return a sentence on the conditions with the highest mean; none for a single condition."""
    measure = source.board.measures[0]
    means = {row.label: mean for row in source.board.rows if (mean := row.scores[measure.key].mean) is not None}
    if len(means) < 2:
        return []
    texts = [
        f"{row.label}, {_format_mean(measure, row.scores[measure.key])}"
        for row in source.board.rows
        if row.label in means and abs(means[row.label] - max(means.values())) < TOLERANCE
    ]
    return [f"The highest mean on {measure.label} was that of {'; and of '.join(texts)}."]


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


def _format_mean(measure: Measure, score: ConditionScore) -> str:
    """Return `90.6 % (81.0 to 95.6 %)`, with the number of scored answers if some have no score."""
    low, high = score.interval or (None, None)
    interval = [statistic_format.format_mean_interval(low, high, measure.is_share)] if score.interval else []
    n = f"{format_count(score.n)} of {format_count(score.planned)} answers, {score.missing_text}"
    remarks = "; ".join([*interval, *([n] if score.missing else [])])
    return statistic_format.format_mean(score.mean, measure.is_share) + (f" ({remarks})" if remarks else "")


def _name(names: list[str], noun: str, *, is_first: bool = False) -> str:
    """Return the names with their noun, or their number if they are many. is_first: with a verb after the noun."""
    if not is_first:
        return join_words(names) if len(names) <= MAX_NAMES else count_noun(len(names), noun)
    shown = names if len(names) <= MAX_NAMES else [*names[:MAX_NAMES], f"{len(names) - MAX_NAMES} more"]
    return f"{noun} is {shown[0]}" if len(names) == 1 else f"{noun}s are {join_words(shown)}"


def write_methods(source: ReportSource) -> Block | None:
    software = source.manifest["evalsite"]
    commit = f" (commit {software['commit'][:12]})" if software["commit"] else ""
    return make_paragraph(
        *_describe_design(source),
        *_describe_calls(source),
        *_describe_graders(source),
        *_describe_statistics(source),
        make_sentence(f"Data were collected and analysed with Evalsite {software['version']}{commit}."),
    )


def _describe_design(source: ReportSource) -> list[Span]:
    experiment, dataset = source.experiment, source.experiment.dataset
    models = sorted(
        {
            f"{model.name} ({model.model}, {model.endpoint.provider or 'unknown provider'})"
            for model in (condition.model for condition in source.generation_conditions)
        }
    )
    prompts = sorted({str(condition.prompt) for condition in source.generation_conditions if condition.prompt})
    page = source.get_url("experiment_detail")
    scales = [
        f"{dimension.title} (from {dimension.low} to {dimension.high})"
        for dimension in source.frames.dimensions.values()
    ]
    rule = describe_stopping_rule(experiment)
    contents = {
        condition.sampler_id: condition.content.get("sampler", condition.sampler.content)
        for condition in source.generation_conditions
    }
    texts = []
    for content in contents.values():
        settings = [
            f"at most {content[name]} tokens" if name == "max_tokens" else f"{name.replace('_', ' ')} {content[name]}"
            for name in NAMED
            if content.get(name) is not None
        ]
        texts.append(join_words(settings) or "the provider's defaults")
    return [
        make_sentence(
            f"We presented {count_noun(dataset.active_count, 'item')} of the dataset {dataset} "
            f"to {join_words(models)}, with the "
            f"{'prompt' if len(prompts) == 1 else 'prompts'} {join_words(prompts)}. ",
            page,
        ),
        make_sentence(f"The models rated {join_words(scales)}. ", page) if scales else Span(""),
        make_sentence(f"We sampled with {'; or with '.join(texts)}. ", page),
        make_sentence(f"{rule} " if rule else f"Each cell of the design was asked {source.repetitions_text}. ", page),
    ]


def _describe_calls(source: ReportSource) -> list[Span]:
    starts = [run.started_at for run in source.runs if run.started_at]
    ends = [run.finished_at for run in source.runs if run.finished_at]
    period = format_days(min(starts, default=None), max(ends, default=None) or max(starts, default=None))
    progress, trials = source.get_url("experiment_progress"), source.count("n_trials")
    n_failed = source.count("n_failed")
    failures = f"{format_count(n_failed)} failed" if n_failed else "none failed"
    return [
        make_sentence(f"The calls were made {'from ' if ' to ' in period else 'on '}{period}. ", progress)
        if period
        else Span(""),
        make_sentence(
            f"Of {count_noun(trials, 'trial')}, {format_count(source.count('n_done'))} were answered and {failures}, "
            f"with at most {count_noun(source.experiment.max_attempts, 'attempt')} for each. ",
            source.get_trials_url(),
        ),
    ]


def _describe_graders(source: ReportSource) -> list[Span]:
    """Return who scored the answers: the rules, the judges with their models, the panels and people."""
    kinds, page = GradeCondition.Kind, source.get_url("experiment_grading")
    if all(measure.is_rating for measure in source.measures):
        return []
    models = {condition.pk: condition.model.name for condition in source.judge_conditions}
    rules = [grader.label for grader in source.graders if grader.kind == kinds.RULE]
    judges = [
        f"{grader.label} with the model {models[grader.judge_condition_id]}"
        if grader.judge_condition_id in models
        else grader.label
        for grader in source.graders
        if grader.kind == kinds.JUDGE
    ]
    panels = [grader.label for grader in source.graders if grader.kind == kinds.PANEL]
    people = len({grader.assignment_id for grader in source.graders if grader.assignment_id})
    phrases = [
        *([f"the {'rule' if len(rules) == 1 else 'rules'} {join_words(rules)}"] if rules else []),
        *([f"the {'judge' if len(judges) == 1 else 'judges'} {join_words(judges)}"] if judges else []),
        *([f"the {'panel' if len(panels) == 1 else 'panels'} {join_words(panels)}"] if panels else []),
        *([count_noun(people, "human rater")] if people else []),
    ]
    return [make_sentence(f"Answers were scored by {join_words(phrases)}. ", page)] if phrases else []


def _describe_statistics(source: ReportSource) -> list[Span]:
    results, analysis = source.get_url("experiment_results"), source.get_url("experiment_analysis")
    texts = {
        "share": "modified Wilson intervals at the effective number of answers for shares",
        "scale": "score intervals within the scale, by Student's t over items, for means",
        "unknown": "Student's t intervals over items for means of scores without a known scale",
    }
    kinds = {
        "share" if one.is_share else "scale" if one.bounds else "unknown" for one in source.board.measures
    }  # fmt: skip
    methods = [text for kind, text in texts.items() if kind in kinds]
    sentences = []
    if methods:
        text = f"We report 95 % confidence intervals with items as clusters: {join_words(methods)}. "
        sentences.append(make_sentence(text, results))
    if len(source.generation_conditions) > 1 and source.measures:
        text = "Conditions were compared by paired tests over their common items, with Holm's correction. "
        sentences.append(make_sentence(text, analysis))
    if source.frames.norm_pairs:
        text = "Mean ratings of items were compared with human norms by Pearson's r and by paired t-tests over items. "
        sentences.append(make_sentence(text, analysis))
    return sentences
