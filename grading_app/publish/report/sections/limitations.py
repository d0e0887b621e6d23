"""Limitations that the data themselves show. A sentence appears only if its condition holds in the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from evalsite.lib.text.number_format import format_count
from grading_app.publish.report.document import (
    Block,
    Listing,
    Span,
    count_noun,
    join_words,
    make_paragraph,
    make_sentence,
)
from grading_app.publish.report.report_source import ReportSource
from grading_app.results.waves import find_pooled_waves
from grading_app.statistics.intervals import SHARE, describe_coverage
from runs_app.llm.model_families import find_family, is_same_family
from runs_app.models import LanguageModel

FEW_ITEMS = 30
MANY_LOST = 0.05
"""The share of trials without a score from which a report mentions them."""


Check = Callable[[ReportSource], Iterator[Span]]
CHECKS: list[Check] = []


def limitation(check: Check) -> Check:
    """Add a check to those of the section. It yields a sentence for each limitation that it finds."""
    CHECKS.append(check)
    return check


def write_limitations(source: ReportSource) -> Block | None:
    limitations = [[sentence] for check in CHECKS for sentence in check(source)]
    if limitations:
        return Listing(limitations)
    return make_paragraph(
        "The checks of this section found no limitation. They cover the number of items, lost answers, "
        "repetitions, versions and providers of the models, the families of judges, and unknown costs."
    )


@limitation
def check_items(source: ReportSource) -> Iterator[Span]:
    items = source.experiment.dataset.active_count
    if items >= FEW_ITEMS:
        return
    shares = any(measure.is_share for measure in source.board.measures)
    note = (
        f" A share of items asked once {describe_coverage(SHARE, items)}."
        if shares and describe_coverage(SHARE, items)
        else ""
    )
    yield make_sentence(
        f"With only {count_noun(items, 'item')}, intervals are wide and small differences stay undetected.{note}",
        source.get_url("experiment_detail"),
    )


@limitation
def check_open_trials(source: ReportSource) -> Iterator[Span]:
    open_trials = source.count("n_pending") + source.count("n_running")
    if open_trials:
        text = (
            f"{format_count(open_trials)} of {count_noun(source.count('n_trials'), 'trial')} had no result yet, so the "
            "numbers may change."
        )
        yield make_sentence(text, source.get_url("experiment_progress"))


@limitation
def check_lost_trials(source: ReportSource) -> Iterator[Span]:
    for outcome in source.frames.outcomes:
        n_ended = outcome.done + outcome.failed
        n_lost = outcome.failed + outcome.unread
        if n_ended and n_lost / n_ended > MANY_LOST:
            yield make_sentence(
                f"{source.frames.labels.get(outcome.condition, '')}: {format_count(n_lost)} of {format_count(n_ended)} "
                "trials failed or gave no rating. If they differ from the others, the scores are biased.",
                source.get_trials_url(condition=outcome.condition),
            )


@limitation
def check_unscored_answers(source: ReportSource) -> Iterator[Span]:
    """Yield the conditions with many answers that a measure could not score: they are in no mean of it."""
    for measure in source.board.measures:
        if measure.is_rating:
            continue
        for row in source.board.rows:
            score = row.scores[measure.key]
            answers = score.n + score.missing
            if answers and score.missing / answers > MANY_LOST:
                yield make_sentence(
                    f"{row.label}: {format_count(score.missing)} of {count_noun(answers, 'answer')} have no score on "
                    f"{measure.label} and are not in its mean. If they differ from the others, the scores are biased.",
                    source.get_url("experiment_results"),
                )


@limitation
def check_repetitions(source: ReportSource) -> Iterator[Span]:
    if source.experiment.samples == 1 and len(source.experiment.waves.all()) < 2:
        yield make_sentence(
            "Each cell was asked once, so the variance over repetitions is unknown.",
            source.get_url("experiment_detail"),
        )


@limitation
def check_pooled_waves(source: ReportSource) -> Iterator[Span]:
    if pooled := find_pooled_waves(source.experiment, None):
        yield make_sentence(" ".join(pooled.sentences), source.get_url("experiment_waves"))


@limitation
def check_variance(source: ReportSource) -> Iterator[Span]:
    """Yield the conditions whose repetitions all agree: they are no independent evidence."""
    constant: dict[str, list[str]] = defaultdict(list)
    for measure in source.measures:
        scores = source.get_analysis_data(measure).scores
        for at, key in enumerate(scores.conditions):
            repeated = scores.n[:, at] > 1
            if repeated.sum() > 1 and not scores.within[repeated, at].any():
                constant[source.frames.labels[int(key)]].append(measure.label)
    for label, measures in constant.items():
        yield make_sentence(
            f"{label}: repetitions of an item never differed on {join_words(measures)}, so they add no information.",
            source.get_url("experiment_analysis"),
        )


@limitation
def check_served_models(source: ReportSource) -> Iterator[Span]:
    by_model: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for condition in source.conditions:
        for served_as in source.served_models.get(condition.pk, []):
            models, providers = by_model[condition.model.name]
            models.update({served_as.model} - {""})
            providers.update({served_as.provider} - {""})
    page = source.get_url("experiment_progress")
    for name, (models, providers) in sorted(by_model.items()):
        if len(models) > 1:
            yield make_sentence(f"{name} was served as several versions: {join_words(sorted(models))}.", page)
        if len(providers) > 1:
            yield make_sentence(f"{name} was served by several providers: {join_words(sorted(providers))}.", page)


@limitation
def check_model_families(source: ReportSource) -> Iterator[Span]:
    """Yield each judge that shares a family with a model that it judged. Judges may prefer their own family."""
    solvers = {_identify(condition.model): condition.model.name for condition in source.generation_conditions}
    judges = {_identify(condition.model): condition.model.name for condition in source.judge_conditions}
    page = source.get_url("experiment_grading")
    for judge, name in judges.items():
        if judge in solvers:
            yield make_sentence(f"The judge {name} scored its own answers too, which it may prefer.", page)
        kin = sorted(
            solver for identity, solver in solvers.items() if identity != judge and is_same_family(judge, identity)
        )
        if kin:
            yield make_sentence(
                f"The judge {name} belongs to the same model family as {join_words(kin)} ({find_family(*judge)}). "
                "Judges may prefer answers of their own family.",
                page,
            )


def _identify(model: LanguageModel) -> tuple[str, str]:
    return str(model.endpoint.provider), model.model


@limitation
def check_unpriced_calls(source: ReportSource) -> Iterator[Span]:
    unpriced = source.count("n_unpriced")
    if unpriced:
        text = f"The cost of {count_noun(unpriced, 'call')} is unknown, so the costs are lower bounds."
        yield make_sentence(text, source.get_url("experiment_ledger"))


@limitation
def check_drift(source: ReportSource) -> Iterator[Span]:
    yield from (
        make_sentence(f"Drift: {warning}.", source.get_url("experiment_detail"))
        for warning in source.manifest["warnings"]
    )
