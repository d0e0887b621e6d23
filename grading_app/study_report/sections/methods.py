"""A methods paragraph to paste into a paper. Every number and name in it comes from rows."""

from __future__ import annotations

from evalsite.lib.text.number_format import format_count
from grading_app.models import GradeCondition
from grading_app.study_report.document import Block, Span, paragraph, sentence
from grading_app.study_report.report_source import ReportSource
from grading_app.study_report.sections.run_settings import NAMED, describe_stopping_rule
from grading_app.study_report.words import count_noun, format_days, format_times, join_words


def write_blocks(source: ReportSource) -> list[Block | None]:
    return [
        paragraph(
            *_describe_design(source),
            *_describe_calls(source),
            *_describe_graders(source),
            *_describe_statistics(source),
            *_describe_software(source),
        )
    ]


def _describe_design(source: ReportSource) -> list[Span]:
    experiment, dataset = source.experiment, source.experiment.dataset
    models = sorted(
        {f"{one.model.name} ({one.model.model}, {one.model.endpoint.provider})" for one in source.generating}
    )
    prompts = sorted({str(one.prompt) for one in source.generating if one.prompt})
    page = source.page("experiment_detail")
    rated = [f"{one.title} (from {one.low} to {one.high})" for one in source.frames.dimensions.values()]
    rule = describe_stopping_rule(experiment)
    return [
        sentence(
            f"We presented {count_noun(dataset.active_count, 'item')} of the dataset {dataset} "
            f"(SHA-256 {dataset.content_hash[:12] or 'not frozen'}) to {join_words(models)}, with the "
            f"{'prompt' if len(prompts) == 1 else 'prompts'} {join_words(prompts)}. ",
            page,
        ),
        sentence(f"The models rated {join_words(rated)}. ", page) if rated else Span(""),
        sentence(_describe_samplers(source), page),
        sentence(
            f"{rule} " if rule else f"Each cell of the design was asked {format_times(experiment.samples)}. ", page
        ),
    ]


def _describe_samplers(source: ReportSource) -> str:
    contents = {one.sampler_id: one.content.get("sampler", one.sampler.content) for one in source.generating}
    texts = []
    for content in contents.values():
        known = [
            f"at most {content[name]} tokens" if name == "max_tokens" else f"{name.replace('_', ' ')} {content[name]}"
            for name in NAMED
            if content.get(name) is not None
        ]
        texts.append(join_words(known) or "the provider's defaults")
    return f"We sampled with {'; or with '.join(texts)}. "


def _describe_calls(source: ReportSource) -> list[Span]:
    starts = [run.started_at for run in source.runs if run.started_at]
    ends = [run.finished_at for run in source.runs if run.finished_at]
    when = format_days(min(starts, default=None), max(ends, default=None) or max(starts, default=None))
    progress, trials = source.page("experiment_progress"), source.count("n_trials")
    failed = source.count("n_failed")
    failures = f"{format_count(failed)} failed" if failed else "none failed"
    return [
        sentence(f"The calls were made {'from ' if ' to ' in when else 'on '}{when}. ", progress) if when else Span(""),
        sentence(
            f"Of {count_noun(trials, 'trial')}, {format_count(source.count('n_done'))} were answered and {failures}, "
            f"with at most {count_noun(source.experiment.max_attempts, 'attempt')} for each. ",
            source.trials(),
        ),
    ]


def _describe_graders(source: ReportSource) -> list[Span]:
    """Return who scored the answers: the rules, the judges with their models, the panels and people."""
    kinds, page = GradeCondition.Kind, source.page("experiment_grading")
    if all(one.is_rating for one in source.measures):
        return []
    models = {one.pk: one.model.name for one in source.judging}
    rules = [one.label for one in source.graders if one.kind == kinds.RULE]
    judges = [
        f"{one.label} with the model {models[one.judge_condition_id]}"
        if one.judge_condition_id in models
        else one.label
        for one in source.graders
        if one.kind == kinds.JUDGE
    ]
    panels = [one.label for one in source.graders if one.kind == kinds.PANEL]
    people = len({one.assignment_id for one in source.graders if one.assignment_id})
    named = [
        *([f"the {'rule' if len(rules) == 1 else 'rules'} {join_words(rules)}"] if rules else []),
        *([f"the {'judge' if len(judges) == 1 else 'judges'} {join_words(judges)}"] if judges else []),
        *([f"the {'panel' if len(panels) == 1 else 'panels'} {join_words(panels)}"] if panels else []),
        *([count_noun(people, "human rater")] if people else []),
    ]
    return [sentence(f"Answers were scored by {join_words(named)}. ", page)] if named else []


def _describe_statistics(source: ReportSource) -> list[Span]:
    results, analysis = source.page("experiment_results"), source.page("experiment_analysis")
    shares = any(one.is_share for one in source.board.measures)
    means = any(not one.is_share for one in source.board.measures)
    methods = ["Wilson's intervals at the effective number of answers for shares"] if shares else []
    methods += ["score intervals within the scale, by Student's t over items, for means"] if means else []
    found = []
    if methods:
        text = f"We report 95 % confidence intervals with items as clusters: {' and '.join(methods)}. "
        found.append(sentence(text, results))
    if len(source.generating) > 1 and source.measures:
        text = "Conditions were compared by paired tests over their common items, with Holm's correction. "
        found.append(sentence(text, analysis))
    if source.frames.norm_pairs:
        text = "Mean ratings of items were compared with human norms by Pearson's r and by paired t-tests over items. "
        found.append(sentence(text, analysis))
    return found


def _describe_software(source: ReportSource) -> list[Span]:
    made = source.manifest["evalsite"]
    commit = f" (commit {made['commit'][:12]})" if made["commit"] else ""
    return [sentence(f"Data were collected and analysed with Evalsite {made['version']}{commit}.")]
