"""The run to which the calls of other programs to one model belong: one in each experiment, in its first wave.

It is always done, because no worker claims its trials: a call is in flight from its first transaction to its second.
"""

from __future__ import annotations

from django.db import transaction

from evalsite.lib.text.hashing import build_condition_id, slugify_name
from runs_app.models import Condition, Experiment, LanguageModel, Run, Sampler

OWN_SETTINGS = "provider-default"
ACTOR = "gateway"


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
