"""A methods paragraph to paste into a paper. Every number and name of it comes from rows."""

from __future__ import annotations

from grading_app.study_report.document import Block, Span, paragraph, sentence
from grading_app.study_report.report_source import ReportSource
from grading_app.study_report.sections.run_settings import NAMED
from grading_app.study_report.words import count_noun, format_days, join_words


def blocks(source: ReportSource) -> list[Block | None]:
    return [paragraph(*_design(source), *_calls(source), *_scores(source), *_software(source))]


def _design(source: ReportSource) -> list[Span]:
    experiment, dataset = source.experiment, source.experiment.dataset
    models = sorted(
        {f"{one.model.name} ({one.model.model}, {one.model.endpoint.provider})" for one in source.generating}
    )
    prompts = sorted({str(one.prompt) for one in source.generating if one.prompt})
    page = source.page("experiment_detail")
    repeated = "once" if experiment.samples == 1 else f"{experiment.samples} times"
    rated = [f"{one.title} ({one.low} to {one.high})" for one in source.frames.dimensions.values()]
    return [
        sentence(
            f"We presented {count_noun(dataset.active_count, 'item')} of {dataset} "
            f"(SHA-256 {dataset.content_hash[:12] or 'not frozen'}) to {join_words(models)} with "
            f"{count_noun(len(prompts), 'prompt')} ({join_words(prompts)}). ",
            page,
        ),
        sentence(f"The models rated {join_words(rated)}. ", page) if rated else Span(""),
        sentence(_samplers(source), page),
        sentence(
            f"Each cell of the design was asked {repeated}, {count_noun(source.count('n_trials'), 'trial')} in all. ",
            source.trials(),
        ),
    ]


def _samplers(source: ReportSource) -> str:
    contents = {one.sampler_id: one.content.get("sampler", one.sampler.content) for one in source.generating}
    texts = []
    for content in contents.values():
        known = [f"{name.replace('_', ' ')} {content[name]}" for name in NAMED if content.get(name) is not None]
        texts.append(join_words(known) or "the provider's defaults")
    return f"Sampling used {'; '.join(texts)}. "


def _calls(source: ReportSource) -> list[Span]:
    experiment = source.experiment
    starts = [run.started_at for run in source.runs if run.started_at]
    ends = [run.finished_at for run in source.runs if run.finished_at]
    when = format_days(min(starts, default=None), max(ends, default=None) or max(starts, default=None))
    progress = source.page("experiment_progress")
    return [
        sentence(f"The calls were made {'from ' if ' to ' in when else 'on '}{when}. ", progress) if when else Span(""),
        sentence(
            f"Each trial had at most {count_noun(experiment.max_attempts, 'attempt')}; "
            f"{source.count('n_done')} were answered and {source.count('n_failed')} failed. ",
            source.trials(status="failed"),
        ),
    ]


def _scores(source: ReportSource) -> list[Span]:
    graders = [one.label for one in source.measures if not one.is_rating]
    results = source.page("experiment_results")
    found = [sentence(f"Answers were scored by {join_words(graders)}. ", results)] if graders else []
    shares = any(one.is_share for one in source.board.measures)
    means = any(not one.is_share for one in source.board.measures)
    methods = ["Wilson's intervals at the effective number of answers for shares"] if shares else []
    methods += ["score intervals within the scale with Student's t over items for means"] if means else []
    if methods:
        found.append(sentence(f"We report {join_words(methods)}, with items as clusters (95 %). ", results))
    if len(source.generating) > 1 and source.measures:
        text = "Conditions were compared by paired tests over common items, corrected by Holm's method. "
        found.append(sentence(text, source.page("experiment_analysis")))
    if source.frames.norm_pairs:
        text = "Item means were compared with human norms by Pearson's r and paired t-tests over items. "
        found.append(sentence(text, source.page("experiment_analysis")))
    return found


def _software(source: ReportSource) -> list[Span]:
    made = source.manifest["evalsite"]
    commit = f", commit {made['commit'][:12]}" if made["commit"] else ""
    return [sentence(f"Data were collected and analysed with Evalsite {made['version']}{commit}.")]
