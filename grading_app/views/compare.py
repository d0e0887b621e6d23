"""The comparisons of two conditions, with both answers to each item, and of two waves, to detect drift of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django import forms
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.web.addresses import change_query
from evalsite.lib.web.form_fields import NamedChoiceField, NumberField
from evalsite.lib.web.model_names import hides_model_names
from grading_app.models import BlindReading
from grading_app.results.cached_aggregates import has_many_answers
from grading_app.results.comparison.comparison_tables import make_comparison_tables
from grading_app.results.comparison.condition_scores import (
    PairedScores,
    correct_for_design,
    get_side_scores,
    load_compared_items,
    pair_scores,
)
from grading_app.results.comparison.condition_sides import (
    ConditionSide,
    compare_designs,
    find_side,
    list_common_measures,
    list_sides,
    parse_experiment_slug,
)
from grading_app.results.leaderboard import BoardQuery
from grading_app.results.scope import MISSING_CHOICES, MISSING_WRONG
from grading_app.results.scores import Measure, count_missing, match_measure
from grading_app.results.stored_results import get_leaderboard
from grading_app.results.waves import (
    WaveComparison,
    find_pooled_waves,
    get_wave_comparison,
    make_wave_outcome_table,
    make_wave_score_tables,
)
from grading_app.statistics.intervals import describe_change_coverage
from grading_app.statistics.paired import MAX_EXACT_ITEMS, MIN_CHANGED
from grading_app.views.tables_and_figures import get_table_context, make_requested_file
from runs_app.models import Experiment, Wave
from runs_app.views.permissions import get_visible_experiment

PER_PAGE = 20
MAX_RECENT = 30  # Experiments in the choice besides the chosen experiments.

FILTERS = {
    "all": "All",
    "gained": "Gained",
    "lost": "Lost",
    "both_wrong": "Both wrong",
    "both_right": "Both right",
    "equal": "Equal",
}
RATED_LABELS = {
    "gained": "B higher",
    "lost": "B lower",
}  # The labels of filters for scores that are not right or wrong.


class CompareForm(forms.Form):
    a = forms.ChoiceField(label="A")
    b = forms.ChoiceField(label="B")
    measure = NamedChoiceField(label="Measure", required=False)
    missing = forms.ChoiceField(
        label="Answers without a score",
        required=False,
        choices=MISSING_CHOICES,
    )
    margin = NumberField(label="Equivalence margin", required=False)
    filter = forms.ChoiceField(required=False, choices=list(FILTERS.items()), widget=forms.HiddenInput())

    def __init__(self, data: Any, sides: Mapping[str, Sequence[ConditionSide]], measures: Sequence[Measure]) -> None:
        super().__init__(data)
        groups = [(slug, [(side.reference, side.name) for side in rows]) for slug, rows in sides.items() if rows]
        for name, choices in (
            ("a", groups),
            ("b", groups),
            ("measure", [(measure.key, measure.label) for measure in measures]),
        ):
            field: Any = self.fields[name]
            field.choices = choices
        field.find_key = lambda name: match_measure(measures, name).key

    def clean_margin(self) -> float | None:
        margin: float | None = self.cleaned_data["margin"]
        if margin is not None and not 0 < margin < 1e9:
            raise forms.ValidationError("Enter a number above 0, or leave it empty.")
        return margin


@require_safe
@readers_only
@hides_model_names()
def compare(request: HttpRequest) -> HttpResponse:
    """Show the choice of two sides, and their comparison once both are chosen.

    `a` and `b` are `experiment:condition` or `experiment:all`, with `:wave` for one wave. A name alone means all
    conditions; the same name twice means the first two conditions. The list of experiments links here with two
    `experiment` parameters instead.
    """
    selected_slugs = request.GET.getlist("experiment")
    reference_a = request.GET.get("a") or (selected_slugs[0] if selected_slugs else "")
    reference_b = request.GET.get("b") or (
        selected_slugs[1] if len(selected_slugs) > 1 else selected_slugs[0] if selected_slugs else ""
    )
    slugs = [parse_experiment_slug(reference) for reference in (reference_a, reference_b) if reference]
    if None in slugs:
        raise Http404
    experiments = [get_visible_experiment(request, slug) for slug in dict.fromkeys(slugs) if slug]
    visible = Experiment.objects.visible_to(request.user).filter(runs__isnull=False).select_related("dataset")
    visible = visible.exclude(status=Experiment.Status.STORED)
    recent = visible.distinct().order_by("-created_at", "-pk")[:MAX_RECENT]
    choices = list(dict.fromkeys([*experiments, *recent]))
    BlindReading.objects.start_for_plans(request.user, experiments)
    hidden = BlindReading.objects.hidden_for(request.user).filter(experiment__in=choices)
    readings = {reading.experiment_id: reading for reading in hidden.select_related("experiment")}
    sides = list_sides(choices, readings)
    a, b = _get_sides(reference_a, reference_b, sides)
    data = request.GET.copy()
    for name, side in (("a", a), ("b", b)):
        if side is not None:
            data[name] = side.reference
    measures, swapped = [], ""
    if a and b:
        measures = list_common_measures(a.experiment, b.experiment)
        swapped = f"?{change_query(request, ('page', 'experiment'), a=b.reference, b=a.reference)}"
    form = CompareForm(data if a and b else None, sides, [measure for measure, _ in measures])
    context: dict[str, Any] = {
        "form": form, "a": a, "b": b, "measures": measures, "sides": sides, "too_many": len(selected_slugs) > 2,
        "swapped": swapped,
        "hidden": [readings[pk] for pk in {side.experiment.pk: None for side in (a, b) if side} if pk in readings],
    }  # fmt: skip
    if a is None or b is None or not measures or not form.is_valid():
        return render(request, "grading_app/compare.html", context)
    return _render_comparison(request, form, a, b, measures, context)


def _get_sides(
    reference_a: str, reference_b: str, sides: dict[str, list[ConditionSide]]
) -> tuple[ConditionSide | None, ConditionSide | None]:
    if reference_a and reference_a == reference_b and ":" not in reference_a:
        condition_sides = {slug: [side for side in rows if not side.is_whole] for slug, rows in sides.items()}
        a = next(iter(condition_sides[reference_a]), None)
        return a, _get_side(reference_b, condition_sides, a)
    a = _get_side(reference_a, sides)
    is_same_experiment = a is not None and parse_experiment_slug(reference_b) == a.experiment.slug
    return a, _get_side(reference_b, sides, a if is_same_experiment else None)


def _get_side(
    reference: str, sides: dict[str, list[ConditionSide]], other: ConditionSide | None = None
) -> ConditionSide | None:
    """Return the chosen side, or None without a choice or a condition. Raise Http404 for an unknown side."""
    if not reference:
        return None
    side = find_side(reference, sides[parse_experiment_slug(reference) or ""], other)
    if side is None and ":" in reference:
        raise Http404
    return side


def _render_comparison(
    request: HttpRequest,
    form: CompareForm,
    a: ConditionSide,
    b: ConditionSide,
    measures: list[tuple[Measure, Measure]],
    context: Any,
) -> HttpResponse:
    choices = form.cleaned_data
    measure, measure_b = next((pair for pair in measures if pair[0].key == choices["measure"]), measures[0])
    # The shortest names that distinguish the sides.
    names = (a.name, b.name)
    if a.experiment != b.experiment:
        names = (f"{a.experiment.slug} / {a.name}", f"{b.experiment.slug} / {b.name}")
    cached = get_side_scores(a, b, (measure, measure_b))
    context["cached"] = list({state.row.pk if state.row else None: state for state in cached}.values())
    if cached[0].value is None or cached[1].value is None:
        context["is_under_way"] = any(state.is_under_way for state in cached)
        return render(request, "grading_app/compare.html", context)
    scores = cached[0].value.scores, cached[1].value.scores
    missing_is_wrong = choices["missing"] == MISSING_WRONG
    paired = pair_scores(a, b, measure, scores, missing_is_wrong=missing_is_wrong)
    pair = paired.pair
    get_address = partial(_get_filter_url, request)
    design = correct_for_design(a, b, measure, scores[0], missing_is_wrong=missing_is_wrong)
    tables = []
    if pair:
        tables = make_comparison_tables(paired, pair, names, choices["margin"], get_address, design)
    basename = f"compare-{a.reference}-{b.reference}".replace(":", "-")
    if (file := make_requested_file(request, tables, basename)) is not None:
        return file
    rows = paired.select(choices["filter"] or "all")
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    context |= {
        "measure": measure,
        "names": names,
        "paired": paired,
        "pair": pair,
        # The lede has the sentence of the first table.
        "tables": [get_table_context(one) for one in (*(replace(one, sentence="") for one in tables[:1]), *tables[1:])],
        "sentence": tables[0].sentence if tables else "",
        "design": compare_designs(a, b, (measure.dimension, measure_b.dimension)),
        "filters": _list_filters(request, paired, choices["filter"] or "all"),
        "filter": choices["filter"] or "all",
        "page": page,
        "rows": load_compared_items(a, b, (measure, measure_b), paired, list(page)),
        "missing": _list_missing((a, measure, paired.missing_a), (b, measure_b, paired.missing_b)),
        "pooled": [
            (side, found)
            for side in {(one.experiment, one.wave): one for one in (a, b)}.values()
            if (found := find_pooled_waves(side.experiment, side.wave))
        ],
        "unfinished": [side for side in dict.fromkeys((a, b)) if side.is_unfinished],
    }
    return render(request, "grading_app/compare.html", context)


def _list_missing(*sides: tuple[ConditionSide, Measure, int]) -> list[tuple[str, int, str]]:
    """Return for each side its name, its number of answers without a score, and their reasons, such as '8 refused'.

    The reasons of many answers are those of the stored results; "" until a worker has computed these.
    """
    counted: dict[tuple[Experiment, Wave | None, Measure], Mapping[int, Mapping[str, int]]] = {}
    entries = []
    for name, (side, measure, missing) in zip("AB", sides, strict=True):
        reasons = Counter[str]()
        if missing:
            scope = side.experiment, side.wave, measure
            if scope not in counted and has_many_answers(side.experiment, side.wave):
                board = get_leaderboard(BoardQuery(side.experiment, side.wave))
                scores = {row.condition: row.scores.get(measure.key) for row in (board.rows if board else ())}
                counted[scope] = {condition: score.reasons for condition, score in scores.items() if score}
            elif scope not in counted:
                counted[scope] = count_missing(side.experiment, measure, side.wave)
            for condition in side.conditions:
                reasons.update(counted[scope].get(condition.pk, {}))
        entries.append((name, missing, ", ".join(f"{n:,} {reason}" for reason, n in reasons.most_common())))
    return entries


def _list_filters(request: HttpRequest, paired: PairedScores, selected: str) -> list[dict[str, Any]]:
    """Return the row filters of this measure, each with its number of items."""
    names = ["all", "gained", "lost", *(["both_wrong", "both_right"] if paired.scores.is_binary else ["equal"])]
    return [
        {
            "name": name,
            "label": FILTERS[name] if paired.scores.is_binary else RATED_LABELS.get(name, FILTERS[name]),
            "n": len(paired.select(name)),
            "address": _get_filter_url(request, name),
            "is_chosen": name == selected,
        }
        for name in names
    ]


def _get_filter_url(request: HttpRequest, name: str) -> str:
    """Return the address of a filter's items, with the other choices of this address."""
    return f"?{change_query(request, ('page', 'table', 'format'), filter=name)}#answers"


@require_safe
@readers_only
def experiment_waves(request: HttpRequest, slug: str) -> HttpResponse:
    """Compare two waves. `a` and `b` are labels or numbers, by default of the first and the last wave.

    `table` and `format` ask for one of the tables as a file.
    """
    experiment = get_visible_experiment(request, slug)
    waves = list(experiment.waves.all())
    context: dict[str, Any] = {"experiment": experiment, "state": experiment.state, "waves": waves}
    if len(waves) > 1:
        a, b = (_choose_wave(waves, request.GET.get(side, ""), index) for side, index in (("a", 0), ("b", -1)))
        # The address of a wave keeps the other choice.
        choices = [
            {
                "title": title,
                "choices": [
                    {
                        "label": str(wave),
                        "is_chosen": wave == chosen,
                        "query": {side: wave.url_name, other_side: other.url_name},
                    }
                    for wave in waves
                ],
            }
            for title, side, chosen, other_side, other in (("From", "a", a, "b", b), ("To", "b", b, "a", a))
        ]
        context |= {"a": a, "b": b, "sides": choices}
        if a != b:
            pair = get_wave_comparison(experiment, a, b)
            scores = make_wave_score_tables(pair.lines, a, b)
            outcomes = make_wave_outcome_table(pair.outcomes, a, b) if pair.outcomes else None
            basename = f"{experiment.slug}-{a.url_name}-{b.url_name}"
            if response := make_requested_file(request, [*scores, *([outcomes] if outcomes else [])], basename):
                return response
            context |= _describe_comparison(experiment, pair)
            context["scores"] = [get_table_context(table) for table in scores]
            context["outcomes"] = get_table_context(outcomes) if outcomes else None
    return render(request, "grading_app/experiment_waves.html", context)


def _choose_wave(waves: list[Wave], name: str, default_index: int) -> Wave:
    if not name:
        return waves[default_index]
    matches = [wave for wave in waves if name == wave.url_name] or [w for w in waves if name == str(w.number)]
    if not matches:
        raise Http404
    return matches[0]


def _describe_comparison(experiment: Experiment, pair: WaveComparison) -> dict[str, Any]:
    """Return the sentences around the tables."""
    coverage_notes = [
        describe_change_coverage(
            (line.change for line in pair.lines if line.change and line.measure.is_share == is_share), is_share=is_share
        )
        for is_share in (True, False)
    ]
    # Ratings of answers on dimensions are not scores.
    on_dimensions = experiment.rating_queues.filter(rubric=None, assignments__ratings__value__isnull=False)
    return {
        "pair": pair,
        "has_several_conditions": len({line.condition for line in pair.lines}) > 1,
        "coverage_notes": [note for note in coverage_notes if note],
        "few": MAX_EXACT_ITEMS,
        "few_changed": MIN_CHANGED,
        "left_out_queues": list(on_dimensions.order_by("name").values_list("name", flat=True).distinct()),
        "tested": [line for line in pair.lines if line.adjusted is not None],
    }
