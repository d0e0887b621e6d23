"""Drift warnings: one name that has stood for different contents.

They never block a launch. A prompt may change, but users must know it before they compare old and new answers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.db import connection
from django.db.models import Count, F, Q, QuerySet, Sum, Value

from evalsite.lib.text.hashing import content_hash
from runs_app.models import Attempt, Condition, Experiment, Run, Trial
from runs_app.planning.conditions import Cell, condition_identity
from runs_app.planning.design import Design

EDITED_AXES = ("prompt", "sampler")  # A model in use keeps its id and its provider.
PLACES = 10
SAMPLED_ATTEMPTS = 100  # Attempts read at each position, because a router mixes several models throughout a run.
# Outcomes with a provider's answer. An error may come from a different provider, so errors do not count.
ANSWERED = (Attempt.Outcome.OK, Attempt.Outcome.CACHED, Attempt.Outcome.LATE)

Trials = Mapping[str, Counter[str]]  # By name, the trials by content hash.


def find_drift_warnings(experiment: Experiment, design: Design | None = None) -> list[str]:
    """Return warnings about names with several contents in this experiment, with hashes and numbers of trials.

    Facets come first, then conditions, then prompts and samplers whose name has another content in other experiments.
    `design` replaces the stored design, for example for an unsaved extension. A condition is listed only if none of its
    facets is listed, because two joined names may read alike.
    """
    if not experiment.pk:
        return []
    facets: dict[str, Counter[str]] = defaultdict(Counter)
    slugs: dict[str, Counter[str]] = defaultdict(Counter)
    axes_of_slug: dict[str, set[str]] = defaultdict(set)
    for condition in _fetch_conditions(experiment):
        rows = sum(run.n_trials for run in condition.runs.all())
        slugs[_slug(condition)][condition_identity(condition.condition_id)] += rows
        for axis, name in _names(condition).items():
            facets[f"{axis} {name}"][content_hash(condition.content[axis])[:12]] += rows
            axes_of_slug[_slug(condition)].add(f"{axis} {name}")
    cells = (design or Design.of(experiment)).cells
    for cell in cells:
        for axis, facet in cell.facets.items():
            facets[f"{axis} {facet.name}"][facet.content_hash[:12]] += 0
    drifted = {name for name, hashes in facets.items() if len(hashes) > 1}
    other_conditions = {
        f"condition {slug}": hashes for slug, hashes in slugs.items() if not axes_of_slug[slug] & drifted
    }
    return [*_sentences(facets), *_sentences(other_conditions), *_edited_elsewhere(experiment, cells)]


def _edited_elsewhere(experiment: Experiment, cells: Sequence[Cell]) -> list[str]:
    """Return a sentence for each prompt and sampler whose name has other contents in other experiments.

    The other experiments are counted but not named, because they may be private.
    """
    here: dict[tuple[str, str], set[str]] = defaultdict(set)
    for cell in cells:
        for axis in EDITED_AXES:
            here[axis, cell.facets[axis].name].add(cell.facets[axis].content_hash[:12])
    if not here:
        return []
    elsewhere = _find_other_uses(experiment, here)
    return [
        f"{axis} {name} was another content in other experiments: "
        f"{', '.join(f'{short} ({use.description})' for short, use in sorted(found.items()))}; "
        f"here it is {', '.join(sorted(here[axis, name]))}"
        for (axis, name), found in sorted(elsewhere.items())
    ]


@dataclass(slots=True)
class _Use:
    """The number of trials that used one content, and their experiments."""

    trials: int = 0
    experiments: set[int] = field(default_factory=set)

    @property
    def description(self) -> str:
        n = len(self.experiments)
        return f"{self.trials} trials in {n} experiment{'' if n == 1 else 's'}"


def _find_other_uses(
    experiment: Experiment, here: Mapping[tuple[str, str], set[str]]
) -> dict[tuple[str, str], dict[str, _Use]]:
    """Return the uses of other contents, by axis and name, then by hash.

    Makes one query, over conditions and runs only.
    """
    found: dict[tuple[str, str], dict[str, _Use]] = defaultdict(lambda: defaultdict(_Use))
    named = Q()
    for axis in EDITED_AXES:
        named |= Q(**{f"{axis}__name__in": [name for of, name in here if of == axis]})
    columns = [f"{axis}__{column}" for axis in EDITED_AXES for column in ("name", "content_hash")]
    trials = sum((F(f"runs__n_{status}") for status in Trial.Status.values), Value(0))
    others = Condition.objects.generating().exclude(experiment=experiment).exclude(experiment__status="archived")
    rows = others.filter(named).order_by().values_list("experiment", *columns).annotate(trials=Sum(trials, default=0))
    for other, *named_contents, n in rows:
        for at, axis in enumerate(EDITED_AXES):
            name, short = named_contents[2 * at], named_contents[2 * at + 1][:12]
            if n and short not in here.get((axis, name), {short}):
                found[axis, name][short].trials += n
                found[axis, name][short].experiments.add(other)
    return found


def _fetch_conditions(experiment: Experiment) -> QuerySet[Condition]:
    return experiment.conditions.generating().select_related("model", "prompt", "sampler").prefetch_related("runs")


def _names(condition: Condition) -> dict[str, str]:
    return {"model": condition.model.name, "prompt": condition.prompt_label, "sampler": condition.sampler.name}


def _slug(condition: Condition) -> str:
    return condition.condition_id.rpartition("--")[0]


def _sentences(trials: Trials) -> list[str]:
    return [_sentence(name, hashes) for name, hashes in sorted(trials.items()) if len(hashes) > 1]


def _sentence(name: str, hashes: Counter[str]) -> str:
    contents = ", ".join(f"{short} ({rows} trials)" for short, rows in hashes.most_common())
    return f"{name} has stood for {len(hashes)} contents: {contents}"


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The models and providers that answered calls. Unreported values are left out."""

    models: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> ServedModels:
        """Build it from a (model, provider) pair for each answer; "" is unreported."""
        reported = list(pairs)
        return cls(*(tuple(sorted({pair[at] for pair in reported} - {""})) for at in (0, 1)))


def find_served_warnings(experiment: Experiment) -> list[str]:
    """Return a warning for each model served as several models, or by several providers without configured routes.

    Reads every attempt, so it is too slow for a page.
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
        f"model {name} was served {word} {', '.join(f'{one} ({calls} calls)' for one, calls in sorted(counts.items()))}"
        for name, both in sorted(by_model.items())
        for word, counts in zip(("as", "by"), map(_reported, both), strict=True)
        if len(counts) > 1
    ]


def _reported(counted: Counter[str]) -> dict[str, int]:
    return {name: calls for name, calls in counted.items() if name}


def sample_served_models(run: Run) -> ServedModels:
    """Return served models and providers, sampled at PLACES positions. The cost does not depend on the run's size.

    Providers are left out if the endpoint routes calls to named providers, because there a change is intended.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            SAMPLE_SERVED, {"run": run.pk, "places": PLACES, "rows": SAMPLED_ATTEMPTS, "answered": list(ANSWERED)}
        )
        found = ServedModels.of(cursor.fetchall())
    return replace(found, providers=()) if run.condition.model.endpoint.provider_routes else found


# Uses the index on (run, id). Reads the first rows and the rows before each position; the last position is the run's
# end.
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
