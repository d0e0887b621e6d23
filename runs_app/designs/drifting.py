"""Where one name has stood for several things. Never blocks: to change a prompt is allowed, to compare its answers with
the old ones unawares is not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from django.db.models import Count, QuerySet

from evalsite.lib.hashing import content_hash
from runs_app.designs.crossed import Design
from runs_app.designs.crossing import identity
from runs_app.models import Attempt, Condition, Experiment, Run

LOOKED_AT = 500  # Attempts at either end of a run: a model is changed at some time, so its two ends differ.

Trials = Mapping[str, Counter[str]]  # Of each name, trials by the hash of its content.


def drift_warnings(experiment: Experiment) -> list[str]:
    """Facets, then conditions, of one name and several contents in this experiment: which hashes, how many trials.

    A condition is named only where its facets do not say it already: two names may read alike once they are joined.
    """
    if not experiment.pk:
        return []
    facets: dict[str, Counter[str]] = defaultdict(Counter)
    slugs: dict[str, Counter[str]] = defaultdict(Counter)
    made_of: dict[str, set[str]] = defaultdict(set)
    for condition in _conditions_of(experiment):
        rows = sum(run.n_trials for run in condition.runs.all())
        slugs[_slug(condition)][identity(condition.condition_id)] += rows
        for axis, name in _names(condition).items():
            facets[f"{axis} {name}"][content_hash(condition.content[axis])[:12]] += rows
            made_of[_slug(condition)].add(f"{axis} {name}")
    for cell in Design.of(experiment).cells:
        for axis, facet in cell.facets.items():
            facets[f"{axis} {facet.name}"][facet.content_hash[:12]] += 0
    drifted = {name for name, hashes in facets.items() if len(hashes) > 1}
    unsaid = {f"condition {slug}": hashes for slug, hashes in slugs.items() if not made_of[slug] & drifted}
    return [*_sentences(facets), *_sentences(unsaid)]


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


def served_model_warnings(experiment: Experiment) -> list[str]:
    """Where a provider answered one model's calls as several models. Reads every attempt: not for a page."""
    served = (
        Attempt.objects.filter(run__experiment=experiment)
        .exclude(served_model="")
        .order_by()
        .values_list("run__condition__model__name", "served_model")
        .annotate(calls=Count("pk"))
    )
    by_model: dict[str, dict[str, int]] = {}
    for name, model, calls in served:
        by_model.setdefault(name, {})[model] = calls
    return [
        f"model {name} was served as {', '.join(f'{model} ({calls} calls)' for model, calls in sorted(models.items()))}"
        for name, models in sorted(by_model.items())
        if len(models) > 1
    ]


def served_models(run: Run) -> list[str]:
    """The models as which a run's first and last attempts were answered: constant in its size, by an index."""
    attempts = Attempt.objects.filter(run=run)
    ends = [attempts.order_by(order).values_list("served_model", flat=True)[:LOOKED_AT] for order in ("pk", "-pk")]
    return sorted({model for end in ends for model in end if model})
