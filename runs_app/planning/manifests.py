"""Manifests of launches, and drift: names whose content has changed since.

A manifest is the full record of a launch, enough to repeat the experiment and to find differences. Its `design` is a
complete experiment file with all texts written out.

Drift warnings never block a launch. A prompt may change, but users must know this before they compare old and new
answers.
"""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from importlib import metadata
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, F, Q, QuerySet, Sum, Value

from evalsite.lib.history import Actor
from evalsite.lib.ops.versions import get_commit, get_version
from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.hashing import hash_content
from runs_app.experiment_options import BUDGET, list_options
from runs_app.grading_interface import grading
from runs_app.models import Attempt, Condition, Experiment, LanguageModel, Manifest, Run, Trial
from runs_app.planning.design import Cell, Design, get_condition_hash
from runs_app.planning.spec_io import SETTINGS, build_spec
from runs_app.pricing.costs import CostEstimate

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
    places = {"run": run.pk, "places": SAMPLED_POSITIONS, "rows": SAMPLED_ATTEMPTS, "answered": list(ANSWERED)}
    served = ServedModels.from_pairs(fetch_rows(SAMPLE_SERVED, places))
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


PACKAGES = ("django", "litellm", "psycopg", "numpy", "scipy", "pillow", "pydantic")
# The recorded fields of an estimate.
COUNTS = ("policy_text", "trials", "to_do", "likely", "foreseen", "batched", "verdicts")
COSTS = ("ceiling_usd", "expected_usd", "full_usd", "spent_usd", "batches_save_usd")


def write_manifest(
    experiment: Experiment,
    *,
    by: Actor,
    wave: str = "",
    pilot: int | None = None,
    approved: CostEstimate | None = None,
    only: Collection[str] | None = None,
    policy: str | None = None,
) -> Manifest:
    """Write the manifest of a wave's launch, or of a pilot with this many trials, at the approved estimate.

    `only` is the set of launched cell ids; None is all cells.
    """
    launch = {
        "by": str(by or ""),
        "wave": wave,
        "pilot": pilot,
        "policy": policy or experiment.budget_policy,
        "conditions": None if only is None else sorted(only),
        "estimate": {
            **{name: getattr(approved, name) for name in COUNTS},
            **{name: _to_text(getattr(approved, name)) for name in COSTS},
            "coverage": approved.coverage,
            "basis": dict(approved.basis),
            "counted": {price.model: price.counted for price in approved.prices},
        }
        if approved
        else None,
    }
    return Manifest.objects.create(
        experiment=experiment,
        content=build_manifest(experiment) | {"launch": launch},
        created_by=by if isinstance(by, User) else None,
    )


def build_manifest(experiment: Experiment) -> dict[str, Any]:
    dataset = experiment.dataset
    conditions = experiment.answer_conditions.select_related("model__endpoint", "prompt", "sampler").order_by("pk")
    return {
        "schema": 1,
        "experiment": experiment.slug,
        "dataset": {"name": str(dataset), "hash": dataset.content_hash, "items": dataset.active_count},
        "samples": experiment.samples,
        "dimensions": [{"name": str(row), "hash": row.content_hash} for row in experiment.dimensions.all()],
        "conditions": [
            {
                "id": condition.condition_id,
                "prompt": {"name": str(condition.prompt), "hash": condition.prompt and condition.prompt.content_hash},
                "sampler": {"name": str(condition.sampler), "hash": condition.sampler.content_hash},
                **describe_model_identity(condition.model, condition.content["model"]),
            }
            for condition in conditions
        ],
        "scorers": experiment.scorers,
        "judges": grading().describe_judges(experiment).in_use,
        "budget": {
            option.key.removeprefix("budget."): _to_text(value) if option.kind is Decimal else value
            for option in list_options(group=BUDGET)
            for value in [getattr(experiment, option.name)]
        },
        "settings": {name: getattr(experiment, name) for name in SETTINGS if name != "samples"},
        "warnings": find_drift_warnings(experiment),
        "design": build_spec(experiment) | {"dataset_hash": dataset.content_hash},
        "evalsite": {"version": get_version(), "commit": get_commit()},
        "packages": dict(read_package_versions()),
        "python": platform.python_version(),
    }


@cache
def read_package_versions() -> Mapping[str, str]:
    """Return the versions of PACKAGES. The first result is cached: the files take 10 ms to read."""
    return {name: metadata.version(name) for name in PACKAGES}


def describe_model_identity(model: LanguageModel, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return `model` and `prices`: US dollars per million tokens as texts (None: unknown), with source and date."""
    prices = model.prices
    return {
        "model": {"name": model.name, "endpoint": model.endpoint.name, **identity},
        "prices": {
            "input": _to_text(prices.input),
            "output": _to_text(prices.output),
            "source": prices.source,
            "as_of": prices.as_of.isoformat() if prices.as_of else None,
        },
    }


def _to_text(value: Any) -> str | None:
    return None if value is None else str(value)
