"""Work of a run: creating the run with its reservations, adding trials, counting them and starting the run.

The design's answers, judges, rubric previews and rubric writers all use these functions. The caller holds the
experiment's row lock. So no other process adds trials to the experiment or cancels its runs meanwhile.

The calls of other programs to one model belong to one external run in each experiment, in its first wave. It is always
done, because no worker claims its trials: a call is in flight from its first transaction to its second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django.db import transaction

from evalsite.lib.history import Actor
from evalsite.lib.text.hashing import build_condition_id, slugify_name
from runs_app.engine.counters import add_pending
from runs_app.engine.run_lifecycle import start_runs
from runs_app.models import Condition, Experiment, LanguageModel, Run, Sampler, Wave
from runs_app.pricing.costs import CallBounds

OWN_SETTINGS = "provider-default"
ACTOR = "gateway"


class PlanError(Exception):
    """Work that cannot be planned. Each of `problems` is a sentence that names the setting to correct."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(self.problems))


def get_or_create_run(condition: Condition, wave: Wave, bounds: CallBounds, *, is_batched: bool = False) -> Run:
    """Return the condition's run in this wave, or create it. Its next claims use these bounds for reservations."""
    columns = {**bounds.columns, "is_batched": is_batched}
    experiment = condition.experiment
    run, is_new = Run.objects.get_or_create(
        condition=condition,
        wave=wave,
        defaults={"experiment": experiment, "max_concurrency": experiment.max_concurrency, **columns},
    )
    if not is_new:
        Run.objects.filter(pk=run.pk).update(**columns)
    return run


def add_trials(run: Run, insert: Callable[[Run], int], *, by: Actor, reason: str, starts: bool = True) -> int:
    """Insert trials into a run, count them, and return their number.

    `insert` inserts the missing trials and returns their number, which replaces `{n}` in `reason`. A planned or done
    run starts. If `starts` is false, a done run becomes planned again, and a launch starts it. A cancelled run gets no
    trials, because no worker would claim them.
    """
    if run.status == Run.Status.CANCELLED or not (added := insert(run)):
        return 0
    add_pending(run.pk, added)
    rows, reason = Run.objects.filter(pk=run.pk), reason.replace("{n}", str(added))
    if starts:
        start_runs(rows, sources=[Run.Status.PLANNED, Run.Status.DONE], by=by, reason=reason)
    else:
        rows.transition(sources=[Run.Status.DONE], target=Run.Status.PLANNED, by=by, reason=reason)
    return added


def refuse_cancelled(run: Run, remedy: str) -> None:
    """Raise PlanError if the run was cancelled. The remedy is the last clause of the message."""
    if run.status == Run.Status.CANCELLED:
        raise PlanError([run.describe_cancelled(remedy)])


def get_or_create_external_run(experiment: Experiment, model: LanguageModel) -> Run:
    """Return the run with its design, creating it with its condition at the model's first call."""
    runs = Run.objects.with_design().filter(condition__stage=Condition.Stage.EXTERNAL, condition__model=model)
    existing: Run | None = runs.filter(experiment=experiment).order_by("pk").first()
    if existing is not None:
        return existing
    with transaction.atomic():
        Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
        sampler = _get_or_create_sampler()
        content = {
            "stage": str(Condition.Stage.EXTERNAL),
            "model": {"provider": model.endpoint.provider, "model": model.model},
            "prompt": {"messages": [], "answer_format": "text"},
            "sampler": sampler.content,
        }
        condition, _ = Condition.objects.get_or_create(
            experiment=experiment,
            condition_id=build_condition_id(f"{slugify_name(model.name)}_external", content | {"name": model.name}),
            defaults={
                "stage": Condition.Stage.EXTERNAL,
                "model": model,
                "sampler": sampler,
                "content": content,
            },
        )
        Run.objects.get_or_create(
            condition=condition,
            wave=experiment.get_first_wave(),
            defaults={
                "experiment": experiment,
                "max_concurrency": experiment.max_concurrency,
                "status": Run.Status.DONE,
            },
        )
    return get_or_create_external_run(experiment, model)


def _get_or_create_sampler() -> Sampler:
    """Return the approved sampler without settings: a program sends its own settings with each call."""
    samplers = Sampler.objects.filter(name=OWN_SETTINGS, status=Sampler.Status.APPROVED)
    existing: Sampler | None = samplers.order_by("-version").first()
    if existing is not None:
        return existing
    sampler: Sampler = Sampler.objects.create(name=OWN_SETTINGS, version=Sampler.get_next_version(OWN_SETTINGS))
    sampler.approve(by=ACTOR, reason="Programs send their own settings")
    return sampler
