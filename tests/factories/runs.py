"""Waves, conditions, runs and trials, planned and answered."""

from datetime import timedelta
from decimal import Decimal
from itertools import product
from uuid import uuid4

from django.db.models import Count, Q, Sum

from evalsite.lib.text.hashing import build_condition_id, slugify_name
from runs_app.models import (
    Attempt,
    Condition,
    Run,
    Trial,
    Wave,
)
from tests.factories.designs import find_or_create
from tests.factories.people import NOON


def make_wave(experiment, number=0, label=""):
    defaults = {
        "label": label or ("" if number == 0 else f"wave-{number}"),
        "epoch_offset": number * experiment.samples,
    }
    return find_or_create(Wave, defaults, experiment=experiment, number=number)


def make_conditions(experiment):
    """Create a condition for each cell of models x prompts x samplers, in that order."""
    cells = product(experiment.language_models.all(), experiment.prompts.all(), experiment.samplers.all())
    return [make_condition(experiment, *cell) for cell in cells]


def make_condition(experiment, model, prompt, sampler):
    content = {"model": model.identity, "prompt": prompt.content, "sampler": sampler.content}
    slug = slugify_name(f"{model.name}-{prompt.name}-{sampler.name}")
    return find_or_create(
        Condition,
        {"model": model, "prompt": prompt, "sampler": sampler, "content": content},
        experiment=experiment,
        condition_id=build_condition_id(slug, content),
    )


def make_runs(experiment, *, wave=0, status="running"):
    """Create a run for each condition of the experiment in this wave, without trials."""
    wave_row = make_wave(experiment, wave)
    return [
        Run.objects.create(experiment=experiment, condition=condition, wave=wave_row, status=status, started_at=NOON)
        for condition in make_conditions(experiment)
    ]


def plan_trials(run, *, answer=None, **fields):
    """Create every trial of the run (items x dimensions x samples). Trials without an answer are pending.

    `answer(item, dimension, sample_idx)` returns a text, a mapping of Trial fields, or None for a pending trial.
    """
    experiment = run.experiment
    items = experiment.dataset.items.active()
    cells = product(items, list(experiment.dimensions.all()) or [None], range(experiment.samples))
    Trial.objects.bulk_create(
        Trial(
            run=run,
            item=item,
            dimension=dimension,
            sample_idx=index,
            **{**_build_trial_fields(answer(item, dimension, index) if answer else None), **fields},
        )
        for item, dimension, index in cells
    )
    refresh_counters(run)
    return list(run.trials.all())


def _build_trial_fields(answer):
    if answer is None:
        return {}
    fields = answer if isinstance(answer, dict) else {"answer": answer}
    return build_done_fields(**fields)


def build_done_fields(**fields):
    """Return the fields of a done trial, with plausible defaults."""
    defaults = {
        "status": "done",
        "attempts": 1,
        "answer": "",
        "raw_response": fields.get("answer", ""),
        "finish_reason": "stop",
        "input_tokens": 100,
        "output_tokens": 10,
        "cost_usd": Decimal("0.00012"),
        "latency_ms": 250,
        "claimed_at": NOON,
        "completed_at": NOON + timedelta(milliseconds=250),
    }
    return {**defaults, **fields}


def build_failed_fields(error_class="server", error="HTTP 500"):
    """Return the fields of a failed trial."""
    return build_done_fields(
        status="failed", attempts=3, error_class=error_class, error=error, raw_response=None, finish_reason=""
    )


def make_attempt(trial, *, outcome="ok", **fields):
    defaults = {
        "cost_usd": trial.cost_usd,
        "input_tokens": trial.input_tokens,
        "output_tokens": trial.output_tokens,
        "finished_at": trial.completed_at or NOON,
    }
    return Attempt.objects.create(
        trial=trial, run_id=trial.run_id, token=uuid4(), outcome=outcome, **{**defaults, **fields}
    )


def refresh_counters(run):
    """Set the counters of a run to match its trials."""
    statuses = ("pending", "running", "done", "failed", "cancelled")
    counters = run.trials.aggregate(
        **{f"n_{status}": Count("pk", filter=Q(status=status)) for status in statuses},
        spent_usd=Sum("cost_usd", default=Decimal(0)),
        input_tokens=Sum("input_tokens", default=0),
        output_tokens=Sum("output_tokens", default=0),
    )
    Run.objects.filter(pk=run.pk).update(**counters)
    run.refresh_from_db()
