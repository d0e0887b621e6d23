"""Test calls that a command makes itself, without a worker."""

from __future__ import annotations

from collections.abc import Collection

from django.core.management.base import CommandError

from datasets_app.models.history import Actor
from evalsite.lib.ops.commands import WORK_FAILED, VerbCommand
from evalsite.lib.text.number_format import format_money
from runs_app.models import Experiment, Preflight


def make_preflights(
    command: VerbCommand, models: Collection[int], *, by: Actor, experiment: Experiment | None = None
) -> None:
    """Call each model once and print the result and its cost. Exit with code 1 unless all models answered."""
    from runs_app.tasks import make_preflight

    failed = 0
    for asked in Preflight.objects.request(models, by=by, experiment=experiment):
        failed += make_preflight(asked.pk) != Preflight.Status.OK
        done = Preflight.objects.select_related("model__endpoint").get(pk=asked.pk)
        cost = f" {format_money(done.cost_usd)}" if done.was_made else ""
        command.say(f"{done.model.name:<24} {done.status:<11} {done.result_text}{cost} {done.warning}".rstrip())
    if failed:
        raise CommandError(f"{failed} of {len(models)} models did not answer", returncode=WORK_FAILED)
