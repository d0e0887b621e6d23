"""Drift warnings: names whose content has changed.

They never block a launch. A prompt may change, but users must know this before they compare old and new answers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.db import connection
from django.db.models import Count, F, Q, QuerySet, Sum, Value

from evalsite.lib.text.hashing import hash_content
from runs_app.models import Attempt, Condition, Experiment, Run, Trial
from runs_app.planning.conditions import Cell, get_condition_hash
from runs_app.planning.design import Design

EDITED_AXES = ("prompt", "sampler")  # A model in use keeps its id and its provider.
SAMPLED_POSITIONS = 10
SAMPLED_ATTEMPTS = 100  # At each position, because a router mixes several models throughout a run.
# Outcomes with a provider's answer. An error may come from another provider, so errors do not count.
ANSWERED = (Attempt.Outcome.OK, Attempt.Outcome.CACHED, Attempt.Outcome.LATE)

TrialCounts = Mapping[str, Counter[str]]  # Numbers of trials by name and content hash.


def find_drift_warnings(experiment: Experiment, design: Design | None = None) -> list[str]:
    """Return warnings about names with several contents, with hashes and numbers of trials.

    Facets come first, then conditions, then prompts and samplers whose name has another content in other experiments.
    `design` replaces the stored design, for example for an unsaved extension. A condition is listed only if none of its
    facets is listed.
    """
    if not experiment.pk:
        return []
    facets: dict[str, Counter[str]] = defaultdict(Counter)
    slugs: dict[str, Counter[str]] = defaultdict(Counter)
    axes_of_slug: dict[str, set[str]] = defaultdict(set)
    conditions: QuerySet[Condition] = experiment.answer_conditions.select_related("model", "prompt", "sampler")
    for condition in conditions.prefetch_related("runs"):
        rows = sum(run.n_trials for run in condition.runs.all())
        slugs[_get_slug(condition)][get_condition_hash(condition.condition_id)] += rows
        for axis, name in {
            "model": condition.model.name,
            "prompt": condition.prompt_label,
            "sampler": condition.sampler.name,
        }.items():
            facets[f"{axis} {name}"][hash_content(condition.content[axis])[:12]] += rows
            axes_of_slug[_get_slug(condition)].add(f"{axis} {name}")
    cells = (design or Design.load(experiment)).cells
    for cell in cells:
        for axis, facet in cell.facets.items():
            facets[f"{axis} {facet.name}"][facet.content_hash[:12]] += 0
    drifted = {name for name, hashes in facets.items() if len(hashes) > 1}
    other_conditions = {
        f"condition {slug}": hashes for slug, hashes in slugs.items() if not axes_of_slug[slug] & drifted
    }
    return [
        *_describe_drifts(facets),
        *_describe_drifts(other_conditions),
        *_describe_other_contents(experiment, cells),
    ]


def _describe_other_contents(experiment: Experiment, cells: Sequence[Cell]) -> list[str]:
    """Return a sentence for each prompt and sampler whose name has other contents in other experiments.

    The other experiments are counted but not named, because they may be private.
    """
    own: dict[tuple[str, str], set[str]] = defaultdict(set)
    for cell in cells:
        for axis in EDITED_AXES:
            own[axis, cell.facets[axis].name].add(cell.facets[axis].content_hash[:12])
    if not own:
        return []
    return [
        f"{axis} {name} has other contents in other experiments: "
        f"{', '.join(f'{short} ({use.description})' for short, use in sorted(uses.items()))}; "
        f"here it is {', '.join(sorted(own[axis, name]))}"
        for (axis, name), uses in sorted(_find_other_uses(experiment, own).items())
    ]


@dataclass(slots=True)
class _Use:
    """The use of one content: the number of its trials, and their experiments."""

    trials: int = 0
    experiments: set[int] = field(default_factory=set)

    @property
    def description(self) -> str:
        n = len(self.experiments)
        return f"{self.trials} trials in {n} experiment{'' if n == 1 else 's'}"


def _find_other_uses(
    experiment: Experiment, own: Mapping[tuple[str, str], set[str]]
) -> dict[tuple[str, str], dict[str, _Use]]:
    """Return the uses of other contents, by axis and name, then by hash. This runs one query on conditions and runs."""
    uses: dict[tuple[str, str], dict[str, _Use]] = defaultdict(lambda: defaultdict(_Use))
    same_name = Q()
    for axis in EDITED_AXES:
        same_name |= Q(**{f"{axis}__name__in": [name for own_axis, name in own if own_axis == axis]})
    columns = [f"{axis}__{column}" for axis in EDITED_AXES for column in ("name", "content_hash")]
    trials = sum((F(f"runs__n_{status}") for status in Trial.Status.values), Value(0))
    others = Condition.objects.filter(stage=Condition.Stage.GENERATE).exclude(experiment=experiment)
    rows = (
        others.filter(same_name)
        .exclude(experiment__status__in=Experiment.ENDED)
        .order_by()
        .values_list("experiment", *columns)
    )
    for other, *names_and_hashes, n in rows.annotate(trials=Sum(trials, default=0)):
        for at, axis in enumerate(EDITED_AXES):
            name, short = names_and_hashes[2 * at], names_and_hashes[2 * at + 1][:12]
            if n and short not in own.get((axis, name), {short}):
                uses[axis, name][short].trials += n
                uses[axis, name][short].experiments.add(other)
    return uses


def _get_slug(condition: Condition) -> str:
    return condition.condition_id.rpartition("--")[0]


def _describe_drifts(trials: TrialCounts) -> list[str]:
    return [_describe_drift(name, hashes) for name, hashes in sorted(trials.items()) if len(hashes) > 1]


def _describe_drift(name: str, hashes: Counter[str]) -> str:
    contents = ", ".join(f"{short} ({rows} trials)" for short, rows in hashes.most_common())
    return f"{name} has had {len(hashes)} contents: {contents}"


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The models and providers that answered calls, without unreported values."""

    models: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]]) -> ServedModels:
        """Return the models and providers in these pairs. An empty text is unreported."""
        reported = list(pairs)
        return cls(*(tuple(sorted({pair[at] for pair in reported} - {""})) for at in (0, 1)))


def find_served_warnings(experiment: Experiment) -> list[str]:
    """Return a warning for each model served as several models, or by several providers without configured routes.

    This reads every attempt, so it is too slow for a page.
    """
    answered = Attempt.objects.filter(run__experiment=experiment, outcome__in=ANSWERED).order_by()
    by_model: dict[str, tuple[Counter[str], Counter[str]]] = {}
    for name, routes, model, provider, calls in answered.values_list(
        "run__condition__model__name",
        "run__condition__model__endpoint__provider_routes",
        "served_model",
        "served_provider",
    ).annotate(calls=Count("pk")):
        models, providers = by_model.setdefault(name, (Counter(), Counter()))
        models[model] += calls
        providers["" if routes else provider] += calls
    return [
        f"model {name} was served {word} {', '.join(f'{key} ({calls} calls)' for key, calls in sorted(counts.items()))}"
        for name, counters in sorted(by_model.items())
        for word, counts in zip(("as", "by"), map(_drop_unreported, counters), strict=True)
        if len(counts) > 1
    ]


def _drop_unreported(counts: Counter[str]) -> dict[str, int]:
    return {name: calls for name, calls in counts.items() if name}


def sample_served_models(run: Run) -> ServedModels:
    """Return served models and providers, sampled at positions along the run. The cost does not depend on its size.

    Providers are left out if the endpoint routes calls to named providers, because then a change is intended.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            SAMPLE_SERVED,
            {"run": run.pk, "places": SAMPLED_POSITIONS, "rows": SAMPLED_ATTEMPTS, "answered": list(ANSWERED)},
        )
        served = ServedModels.from_pairs(cursor.fetchall())
    return replace(served, providers=()) if run.endpoint.provider_routes else served


# This uses the index on (run, id). It reads the first rows and the rows before each position. The last position is the
# end of the run.
SAMPLE_SERVED = """WITH ends AS (SELECT min(id) AS first, max(id) AS last FROM runs_app_attempt WHERE run_id = %(run)s)
    SELECT DISTINCT seen.served_model, seen.served_provider
    FROM ends CROSS JOIN generate_series(1, %(places)s) AS place CROSS JOIN LATERAL (
        SELECT served_model, served_provider, outcome FROM runs_app_attempt
        WHERE run_id = %(run)s AND id <= first + (last - first) * place / %(places)s ORDER BY id DESC LIMIT %(rows)s
    ) AS seen WHERE seen.outcome = ANY(%(answered)s)
    UNION
    SELECT served_model, served_provider FROM (
        SELECT * FROM runs_app_attempt WHERE run_id = %(run)s ORDER BY id LIMIT %(rows)s
    ) AS opening WHERE outcome = ANY(%(answered)s)"""
