"""Where one name has stood for several things. Never blocks: to change a prompt is allowed, to compare its answers with
the old ones unawares is not.
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

EDITED_AXES = ("prompt", "sampler")  # A model that was asked keeps its id and its provider.
PLACES = 10
LOOKED_AT = 100  # Attempts at each place: a model is changed at some time, and a router serves from several all along.
# What a provider has answered: an error may come from one that would have been asked in vain.
ANSWERED = (Attempt.Outcome.OK, Attempt.Outcome.CACHED, Attempt.Outcome.LATE)

Trials = Mapping[str, Counter[str]]  # Of each name, trials by the hash of its content.


def drift_warnings(experiment: Experiment, design: Design | None = None) -> list[str]:
    """Facets, then conditions, of one name and several contents in this experiment: which hashes, how many trials.

    `design` is the design where it is not the one that is stored, as for an extension that is not saved yet.
    A condition is named only where its facets do not say it already: two names may read alike once they are joined.
    Then prompts and samplers whose name stands for another content in other experiments.
    """
    if not experiment.pk:
        return []
    facets: dict[str, Counter[str]] = defaultdict(Counter)
    slugs: dict[str, Counter[str]] = defaultdict(Counter)
    made_of: dict[str, set[str]] = defaultdict(set)
    for condition in _conditions_of(experiment):
        rows = sum(run.n_trials for run in condition.runs.all())
        slugs[_slug(condition)][condition_identity(condition.condition_id)] += rows
        for axis, name in _names(condition).items():
            facets[f"{axis} {name}"][content_hash(condition.content[axis])[:12]] += rows
            made_of[_slug(condition)].add(f"{axis} {name}")
    cells = (design or Design.of(experiment)).cells
    for cell in cells:
        for axis, facet in cell.facets.items():
            facets[f"{axis} {facet.name}"][facet.content_hash[:12]] += 0
    drifted = {name for name, hashes in facets.items() if len(hashes) > 1}
    unsaid = {f"condition {slug}": hashes for slug, hashes in slugs.items() if not made_of[slug] & drifted}
    return [*_sentences(facets), *_sentences(unsaid), *_edited_elsewhere(experiment, cells)]


def _edited_elsewhere(experiment: Experiment, cells: Sequence[Cell]) -> list[str]:
    """Return a sentence for each prompt and sampler whose name was asked with other contents by other experiments.

    They are counted and not named, because they may be private.
    """
    here: dict[tuple[str, str], set[str]] = defaultdict(set)
    for cell in cells:
        for axis in EDITED_AXES:
            here[axis, cell.facets[axis].name].add(cell.facets[axis].content_hash[:12])
    if not here:
        return []
    elsewhere = _asked_elsewhere(experiment, here)
    return [
        f"{axis} {name} was another content in other experiments: "
        f"{', '.join(f'{short} ({one.trials} trials in {one.said})' for short, one in sorted(found.items()))}; "
        f"here it is {', '.join(sorted(here[axis, name]))}"
        for (axis, name), found in sorted(elsewhere.items())
    ]


@dataclass(slots=True)
class _Use:
    """Trials that asked with one content, and the experiments they belong to."""

    trials: int = 0
    experiments: set[int] = field(default_factory=set)

    @property
    def said(self) -> str:
        n = len(self.experiments)
        return f"{n} experiment{'' if n == 1 else 's'}"


def _asked_elsewhere(
    experiment: Experiment, here: Mapping[tuple[str, str], set[str]]
) -> dict[tuple[str, str], dict[str, _Use]]:
    """By axis and name, then by the hash of another content. One query, over conditions and runs alone."""
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


def _conditions_of(experiment: Experiment) -> QuerySet[Condition]:
    return experiment.conditions.generating().select_related("model", "prompt", "sampler").prefetch_related("runs")


def _names(condition: Condition) -> dict[str, str]:
    return {"model": condition.model.name, "prompt": condition.asked_with, "sampler": condition.sampler.name}


def _slug(condition: Condition) -> str:
    return condition.condition_id.rpartition("--")[0]


def _sentences(trials: Trials) -> list[str]:
    return [_sentence(name, hashes) for name, hashes in sorted(trials.items()) if len(hashes) > 1]


def _sentence(name: str, hashes: Counter[str]) -> str:
    contents = ", ".join(f"{short} ({rows} trials)" for short, rows in hashes.most_common())
    return f"{name} has stood for {len(hashes)} contents: {contents}"


@dataclass(frozen=True, slots=True)
class ServedModels:
    """As what models, and by which providers, calls were answered; what was not said is no part."""

    models: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> ServedModels:
        """Of a model and a provider for each answer, "" where it does not say."""
        said = list(pairs)
        return cls(*(tuple(sorted({pair[at] for pair in said} - {""})) for at in (0, 1)))


def served_warnings(experiment: Experiment) -> list[str]:
    """Where one model's calls were answered as several models, or by several providers though no routes were set.

    Reads every attempt: not for a page.
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
        f"model {name} was served {word} {', '.join(f'{one} ({calls} calls)' for one, calls in sorted(said.items()))}"
        for name, both in sorted(by_model.items())
        for word, said in zip(("as", "by"), map(_said, both), strict=True)
        if len(said) > 1
    ]


def _said(counted: Counter[str]) -> dict[str, int]:
    return {name: calls for name, calls in counted.items() if name}


def served_in(run: Run) -> ServedModels:
    """As what and by whom a run's calls were answered, looked up at PLACES places along it: constant in its size.

    Where the endpoint routes its calls to providers by name, they are left out: there a change is asked for.
    """
    with connection.cursor() as cursor:
        cursor.execute(_ALONG, {"run": run.pk, "places": PLACES, "rows": LOOKED_AT, "answered": list(ANSWERED)})
        found = ServedModels.of(cursor.fetchall())
    return replace(found, providers=()) if run.condition.model.endpoint.provider_routes else found


# By the index on (run, id). The first rows, then those before each place: the last of them are the run's last rows.
_ALONG = """WITH ends AS (SELECT min(id) AS first, max(id) AS last FROM runs_app_attempt WHERE run_id = %(run)s)
    SELECT DISTINCT seen.served_model, seen.served_provider
    FROM ends CROSS JOIN generate_series(1, %(places)s) AS place CROSS JOIN LATERAL (
        SELECT served_model, served_provider, outcome FROM runs_app_attempt
        WHERE run_id = %(run)s AND id <= first + (last - first) * place / %(places)s ORDER BY id DESC LIMIT %(rows)s
    ) AS seen WHERE seen.outcome = ANY(%(answered)s)
    UNION
    SELECT served_model, served_provider FROM (
        SELECT * FROM runs_app_attempt WHERE run_id = %(run)s ORDER BY id LIMIT %(rows)s
    ) AS opening WHERE outcome = ANY(%(answered)s)"""
