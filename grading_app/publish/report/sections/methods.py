"""A methods paragraph to paste into a paper. Every number and name in it comes from rows."""

from __future__ import annotations

from evalsite.lib.text.number_format import format_count
from grading_app.models import GradeCondition
from grading_app.publish.report.document import Block, Span, make_paragraph, make_sentence
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.sections.run_settings import NAMED, describe_stopping_rule
from grading_app.publish.report.words import count_noun, format_days, join_words


def write_blocks(source: ReportSource) -> list[Block | None]:
    software = source.manifest["evalsite"]
    commit = f" (commit {software['commit'][:12]})" if software["commit"] else ""
    return [
        make_paragraph(
            *_describe_design(source),
            *_describe_calls(source),
            *_describe_graders(source),
            *_describe_statistics(source),
            make_sentence(f"Data were collected and analysed with Evalsite {software['version']}{commit}."),
        )
    ]


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
    shares = any(measure.is_share for measure in source.board.measures)
    means = any(not measure.is_share for measure in source.board.measures)
    methods = ["modified Wilson intervals at the effective number of answers for shares"] if shares else []
    methods += ["score intervals within the scale, by Student's t over items, for means"] if means else []
    sentences = []
    if methods:
        text = f"We report 95 % confidence intervals with items as clusters: {' and '.join(methods)}. "
        sentences.append(make_sentence(text, results))
    if len(source.generation_conditions) > 1 and source.measures:
        text = "Conditions were compared by paired tests over their common items, with Holm's correction. "
        sentences.append(make_sentence(text, analysis))
    if source.frames.norm_pairs:
        text = "Mean ratings of items were compared with human norms by Pearson's r and by paired t-tests over items. "
        sentences.append(make_sentence(text, analysis))
    return sentences
