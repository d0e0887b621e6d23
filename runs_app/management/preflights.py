"""Test calls that a command makes itself, without a worker."""

from __future__ import annotations

from collections.abc import Collection

from django.core.management.base import CommandError

from evalsite.lib.history import Actor
from evalsite.lib.ops.commands import WORK_FAILED, VerbCommand
from evalsite.lib.text.number_format import format_money
from runs_app.models import Experiment, Preflight


def make_preflights(
    command: VerbCommand, models: Collection[int], *, by: Actor, experiment: Experiment | None = None
) -> None:
    """Call each model once and print its result and cost. Exit with code 1 unless all models answer."""
    from runs_app.tasks import make_preflight

    failed = 0
    for requested in Preflight.objects.request(models, by=by, experiment=experiment):
        failed += make_preflight(requested.pk) != Preflight.Status.OK
        row = Preflight.objects.select_related("model__endpoint").get(pk=requested.pk)
        cost = f" {format_money(row.cost_usd)}" if row.was_made else ""
        command.write(f"{row.model.name:<24} {row.status:<11} {row.result_text}{cost} {row.warning}".rstrip())
    if failed:
        raise CommandError(f"{failed} of {len(models)} models did not answer", returncode=WORK_FAILED)
