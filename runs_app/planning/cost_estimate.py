"""The size and cost of a design before its launch: a ceiling, an expected cost, and the data behind both.

The summary is for the form, the design page and the launch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from django.db.models import Count, QuerySet
from django.db.models.functions import Right

from runs_app.grading_interface import grading
from runs_app.models import Experiment, LanguageModel, Run, Trial
from runs_app.models.cache import list_purges
from runs_app.planning import points
from runs_app.planning.design import Cell, Design, Facet, get_condition_hash
from runs_app.planning.manifests import find_drift_warnings
from runs_app.planning.plan import count_missing, share_pilot
from runs_app.planning.power import DetectableEffect, compute_detectable_effect
from runs_app.pricing.costs import Basis, CostEstimate, Expectation, ObservedTokens, Price

HASH_CHARS = 12  # Characters at the end of a condition's id.


@dataclass(frozen=True, slots=True)
class _CellCost:
    """The calls of one cell and the cost of each.

    `to_do` is the maximum number of calls, `likely` the expected number, and `cached` the part that the cache answers.
    """

    to_do: int
    likely: int
    ceiling: Decimal | None
    expected: Expectation | None
    discount: Decimal
    cached: int

    @property
    def usd_per_call(self) -> Decimal | None:
        return self.expected.usd if self.expected else None

    @property
    def batch_saving_usd(self) -> Decimal | None:
        """Return the amount that a batch saves on one call, in US dollars."""
        if not self.discount:
            return Decimal(0)
        if self.expected is None or self.discount == 1:
            return None
        return self.expected.usd * self.discount / (1 - self.discount)


def estimate(
    experiment: Experiment,
    *,
    wave_label: str = "",
    pilot: int | None = None,
    only: Collection[str] | None = None,
    policy: str | None = None,
) -> CostEstimate:
    """Return the cost of launching this wave now, or a pilot of it. The experiment may be a draft.

    This reads counters, not trials. `only` is a set of cell ids; None is all cells. `policy` is a budget policy that
    replaces the design's own.
    """
    design = Design.load(experiment, policy=policy)
    return estimate_design(design if only is None else design.narrow_to(only), wave_label=wave_label, pilot=pilot)


def estimate_design(design: Design, *, wave_label: str = "", pilot: int | None = None) -> CostEstimate:
    """Return the estimate of a design. Its experiment need not be saved yet."""
    # The costs of the design's cells, in the order of the cells.
    runs = (
        list(design.experiment.answer_runs.with_reuse().select_related("condition", "wave"))
        if design.experiment.pk
        else []
    )
    by_cell: dict[tuple[int | None, str], list[Run]] = defaultdict(list)
    by_model: dict[int | None, list[Run]] = defaultdict(list)
    for run in runs:
        by_cell[run.condition.model_id, get_condition_hash(run.condition.condition_id)].append(run)
        by_model[run.condition.model_id].append(run)
    estimator = _CellEstimator(
        design,
        wave_label,
        runs_by_cell=by_cell,
        tokens_by_model={key: compute_observed_tokens(of_model) for key, of_model in by_model.items()},
        pooled_tokens=compute_observed_tokens(runs),
        remaining=points.count_remaining_cases(design.experiment, design.adaptive, design.points)
        if design.adaptive and pilot is None and not design.is_dev
        else {},
        share=design.expected_share if pilot is None else 1.0,
        cached_by_cell=forecast_cache_hits(design, wave_label),
        dev=_count_planned_dev_trials(design, runs) if design.is_dev and pilot is None else {},
        counts_pilots=pilot is not None and _has_dev_trials(design),
    )
    sizes = [design.trials_per_cell] * len(design.cells) if pilot is None else share_pilot(design, pilot)
    parts = [estimator.estimate_cell(cell, n) for cell, n in zip(design.cells, sizes, strict=True)]
    to_do = sum(part.to_do for part in parts)
    # The number of trials to do, by the kind of observations behind their expected cost.
    trials: Counter[Basis] = Counter()
    for part in parts:
        if part.expected and part.to_do:
            trials[part.expected.basis] += part.to_do
    basis = dict(trials)
    observed_trials = sum(trials for name, trials in basis.items() if name != "ceiling")
    answers = CostEstimate(
        trials=design.trials_per_cell * len(parts),
        to_do=to_do,
        spent_usd=design.experiment.spent_usd,
        ceiling_usd=sum_costs((part.to_do, part.ceiling) for part in parts),
        expected_usd=sum_costs((part.likely - part.cached, part.usd_per_call) for part in parts),
        basis=basis,
        coverage=observed_trials / to_do if to_do else 1.0,
        prices=[describe_price(model, shows_images=design.shows_images) for model in design.models],
        unknown_prices=design.unknown_prices,
        problems=design.find_problems(),
        warnings=[*design.find_warnings(), *find_drift_warnings(design.experiment, design)],
        likely=sum(part.likely for part in parts) if design.adaptive else None,
        foreseen=sum(part.cached for part in parts),
        policy_text=design.policy_text,
        full_usd=sum_costs((design.whole_trials_per_cell, part.usd_per_call) for part in parts),
        batched=sum(part.to_do for part in parts if part.discount),
        batches_save_usd=sum_costs((part.likely, part.batch_saving_usd) for part in parts),
    )
    return _add_judge_costs(answers, design, wave_label, pilot)


def _count_planned_dev_trials(design: Design, runs: Iterable[Run]) -> dict[int, int]:
    """Return the number of planned trials of the policy `dev`, by run."""
    rows = Trial.objects.filter(
        run__in=[run.pk for run in runs], item__in=design.dev_item_ids or (), sample_idx__lt=design.samples
    )
    return dict(rows.order_by().values_list("run").annotate(n=Count("pk")))


def _has_dev_trials(design: Design) -> bool:
    """Return whether trials of the policy `dev` may exist."""
    if not design.experiment.pk:
        return False
    return design.is_dev or design.experiment.manifests.filter(content__launch__policy="dev").exists()


@dataclass(frozen=True, slots=True)
class _CellEstimator:
    """The data behind one estimate.

    `runs_by_cell` has the runs of a cell in any wave, by model and hash: two endpoints may serve equal models.
    `tokens_by_model` and `pooled_tokens` are observed in the runs of a model, and in all runs. `remaining` has the
    cases that open points may still get, by run, and `share` is their likely part. `cached_by_cell` has the number of
    answers in the response cache, by the hash of a cell. `dev` has the planned trials of the policy `dev`, by run. With
    `counts_pilots`, counters cannot tell which trials of a pilot exist, because the policy `dev` planned others.
    """

    design: Design
    wave_label: str
    runs_by_cell: Mapping[tuple[int | None, str], list[Run]]
    tokens_by_model: Mapping[int | None, ObservedTokens | None]
    pooled_tokens: ObservedTokens | None
    remaining: Mapping[int, int]
    share: float
    cached_by_cell: Mapping[str, int]
    dev: Mapping[int, int]
    counts_pilots: bool

    def estimate_cell(self, cell: Cell, n_trials: int) -> _CellCost:
        hash12, model = get_condition_hash(cell.condition_id), cell.model.key
        cell_runs = self.runs_by_cell.get((model, hash12), [])
        in_wave = [run for run in cell_runs if run.wave.label == self.wave_label]
        n_planned = sum(self._count_planned(run, n_trials) for run in in_wave)
        # The calls still to make: planned trials that have not ended, plus trials that planning would add.
        # `n_planned` of the `n_trials` exist already. `remaining` has the cases that open points may still get, by
        # run; decided points get none.
        waiting = sum(run.n_pending + run.n_running for run in in_wave)
        in_rounds = [self.remaining[run.pk] for run in in_wave if run.pk in self.remaining]
        to_do = waiting + (sum(in_rounds) if in_rounds else max(0, n_trials - n_planned))
        likely = round(to_do * self.share)
        # All runs make their calls in the same order. So the trials done here are the first ones in the cache.
        n_cached = self.cached_by_cell.get(hash12, 0) - sum(run.n_done for run in in_wave)
        ceiling = self.design.get_ceiling(cell)
        return _CellCost(
            to_do,
            likely,
            ceiling=ceiling,
            expected=self.design.get_prices(cell).compute_expected_cost(
                ceiling,
                own=compute_observed_tokens(cell_runs),
                group=self.tokens_by_model.get(model),
                pooled=self.pooled_tokens,
            ),
            discount=self.design.get_discount(cell),
            cached=max(0, min(n_cached, likely)),
        )

    def _count_planned(self, run: Run, n_trials: int) -> int:
        """Return how many of this run's `n_trials` are planned."""
        if self.counts_pilots:
            return n_trials - count_missing(self.design, run, n_trials)
        return self.dev.get(run.pk, 0) if self.design.is_dev else run.n_trials


def compute_observed_tokens(runs: Iterable[Run]) -> ObservedTokens | None:
    """Return the mean tokens per answered trial, including its failed attempts. Fetch the runs `with_reuse()`.

    Answers from the response cache used no tokens, so they do not count.
    """
    runs = list(runs)
    calls = sum(run.n_done - run.n_reused for run in runs)
    if calls <= 0:
        return None
    return ObservedTokens(
        input_mean=sum(run.input_tokens for run in runs) / calls,
        output_mean=sum(run.output_tokens for run in runs) / calls,
        calls=calls,
    )


def sum_costs(parts: Iterable[tuple[int, Decimal | None]]) -> Decimal | None:
    """Return the total cost of (calls, cost per call) pairs; None if a pair with calls has an unknown cost."""
    total = Decimal(0)
    for n_calls, usd_per_call in parts:
        if n_calls and usd_per_call is None:
            return None
        total += n_calls * (usd_per_call or 0)
    return total


def describe_price(model: LanguageModel, *, shows_images: bool = False) -> Price:
    prices = model.prices
    token_rules = model.describe_token_rules(shows_images=shows_images)
    return Price(model.name, prices.input, prices.output, prices.source, prices.as_of, prices.is_free, token_rules)


def _add_judge_costs(answers: CostEstimate, design: Design, wave_label: str, pilot: int | None) -> CostEstimate:
    """Return the estimate plus the expected verdicts, each at its ceiling and its expected cost.

    Judges run after the answers, under the same budget.
    """
    experiment = design.experiment
    if not (experiment.pk and experiment.graders):
        return answers
    sampler_ids = [cell.sampler.key for cell in design.cells]
    limits = [sampler.compute_output_ceiling() for sampler in design.samplers if sampler.pk in sampler_ids]
    limits += [model.max_output_tokens for model in design.models] if None in limits else []
    longest = max((limit for limit in limits if limit is not None), default=None)
    judges: CostEstimate = grading().forecast_judges(experiment, wave_label, pilot or answers.trials, longest)
    listed = {price.model for price in answers.prices}
    return replace(
        answers,
        verdicts=judges.to_do,
        ceiling_usd=_add_usd(answers.ceiling_usd, judges.ceiling_usd),
        expected_usd=_add_usd(answers.expected_usd, judges.expected_usd),
        prices=[*answers.prices, *(price for price in judges.prices if price.model not in listed)],
        unknown_prices=list(dict.fromkeys([*answers.unknown_prices, *judges.unknown_prices])),
        problems=[*answers.problems, *judges.problems],
        warnings=[*answers.warnings, *judges.warnings],
    )


def _add_usd(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    return None if first is None or second is None else first + second


def forecast_cache_hits(design: Design, wave_label: str = "") -> dict[str, int]:
    """Return the largest number of trials that another run has answered, by cell hash. Cells without any are left out.

    This reads counters, as the whole estimate does. The result is empty if the design does not read the cache (off,
    salted, or a later wave). Runs that started before the last purge of the cache do not count. Repetitions run in
    order. So if a run has more repetitions than this design, only the matching share counts.
    """
    if not _may_read_cache(design, wave_label):
        return {}
    hits: dict[str, int] = {}
    for hash12, run in _find_equal_runs(design):
        share = min(1.0, design.samples / run.experiment.samples)
        hits[hash12] = max(hits.get(hash12, 0), round(run.n_done * share))
    return hits


def _may_read_cache(design: Design, wave_label: str) -> bool:
    experiment = design.experiment
    if not experiment.cache or experiment.cache_buster:
        return False
    first = experiment.waves.order_by("number").first() if experiment.pk else None
    return first is None or first.label == wave_label


def _find_equal_runs(design: Design) -> Iterator[tuple[str, Run]]:
    """Yield the runs with cached answers for the same conditions, items and dimensions, each with its cell hash."""
    dimension_ids = {dimension.pk for dimension in design.dimensions}
    experiment = design.experiment
    hashes = [get_condition_hash(cell.condition_id) for cell in design.cells]
    runs = Run.objects.generating().annotate(hash12=Right("condition__condition_id", HASH_CHARS))
    equal_runs = runs.filter(
        hash12__in=hashes,
        n_done__gt=0,
        wave__epoch_offset=0,
        experiment__dataset=experiment.dataset_id,
        experiment__cache=True,
        experiment__cache_buster=False,
    )
    if experiment.pk:
        equal_runs = equal_runs.exclude(experiment=experiment.pk)
    if (purge := list_purges().first()) is not None:
        equal_runs = equal_runs.filter(started_at__gt=purge.at)
    with_rows: QuerySet[Run] = equal_runs.select_related("experiment", "condition")
    for run in with_rows.prefetch_related("experiment__dimensions"):
        if {dimension.pk for dimension in run.experiment.dimensions.all()} == dimension_ids:
            yield get_condition_hash(run.condition.condition_id), run


@dataclass(frozen=True, slots=True)
class DesignSummary:
    """The size of a crossing and its cost estimate."""

    conditions: int
    items: int
    dimensions: int
    samples: int
    estimate: CostEstimate
    is_over_budget: bool
    needs_confirmation: bool
    policy_text: str = ""

    @property
    def problems(self) -> list[str]:
        return self.estimate.problems

    @property
    def warnings(self) -> list[str]:
        return self.estimate.warnings

    @property
    def detectable(self) -> DetectableEffect | None:
        """Return the detectable effect under the default assumptions. The design page can change them."""
        return compute_detectable_effect(self.items, self.samples) if self.samples > 0 else None

    @property
    def all_from_cache(self) -> bool:
        """Return whether other experiments probably have the answers of all remaining trials."""
        return 0 < self.estimate.to_do <= self.estimate.foreseen

    @property
    def coverage_percent(self) -> int:
        return int(100 * self.estimate.coverage)


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell of a crossing. A planned cell can no longer change."""

    id: str
    model: Facet
    prompt: Facet
    sampler: Facet
    planned: bool


def summarise_experiment(
    experiment: Experiment, *, wave_label: str = "", pilot: int | None = None, policy: str | None = None
) -> DesignSummary:
    return summarise_design(Design.load(experiment, policy=policy), wave_label=wave_label, pilot=pilot)


def summarise_design(design: Design, *, wave_label: str = "", pilot: int | None = None) -> DesignSummary:
    """Return the summary of a design. Its experiment may be unsaved."""
    estimate = estimate_design(design, wave_label=wave_label, pilot=pilot)
    return DesignSummary(
        conditions=len(design.cells),
        items=design.n_planned_items,
        dimensions=len(design.dimensions),
        samples=design.samples,
        policy_text=design.policy_text,
        estimate=estimate,
        is_over_budget=design.experiment.may_exceed_budget(estimate.ceiling_usd),
        needs_confirmation=design.experiment.needs_confirmation(estimate.ceiling_usd),
    )


def list_cells(design: Design) -> list[CellRow]:
    """Return the cells of the current design, planned or not. Conditions that left the design are not included.

    An imported experiment may have several runs of one cell. It cannot change, so all its conditions are included.
    """
    conditions = {
        get_condition_hash(condition.condition_id): condition
        for condition in design.experiment.answer_conditions.select_related("model", "prompt", "sampler")
    }
    rows = {
        (short := get_condition_hash(cell.condition_id)): CellRow(
            cell.condition_id, cell.model, cell.prompt, cell.sampler, short in conditions
        )
        for cell in design.cells
    }
    if design.experiment.imported_from:
        for short, condition in conditions.items():
            model, prompt, sampler = (
                Facet(row.name if row else "", {}) for row in (condition.model, condition.prompt, condition.sampler)
            )
            rows.setdefault(short, CellRow(condition.condition_id, model, prompt, sampler, True))
    return list(rows.values())
