"""The lookups that enforce permissions: they raise Http404 for a row that the user may not see or change."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404

from evalsite.lib.text.names import UnknownNameError
from runs_app.models import Experiment, ProviderBatch, Run, Wave


class RowsAreStored(Exception):
    """A page needs the answers of an experiment, which are in a file. A middleware shows a notice instead."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(f"the answers and grades of {experiment} are in a file")
        self.experiment = experiment


def get_visible_experiment(request: HttpRequest, slug: str, *, needs_rows: bool = True) -> Experiment:
    """Return an experiment that the user may see. Raise RowsAreStored if it needs rows that are in a file."""
    visible = Experiment.objects.visible_to(request.user).with_star(request.user).with_wave_count()
    experiments = visible.select_related("dataset", "owner")
    experiment: Experiment = get_object_or_404(experiments, slug=slug)
    if needs_rows and experiment.is_stored:
        raise RowsAreStored(experiment)
    return experiment


def get_editable_experiment(request: HttpRequest, slug: str, *, needs_rows: bool = True) -> Experiment:
    """Return an experiment that the user may change. Its status may still forbid the change."""
    get_visible_experiment(request, slug, needs_rows=needs_rows)
    editable = Experiment.objects.editable_by(request.user).with_star(request.user).with_wave_count()
    experiments = editable.select_related("dataset", "owner")
    experiment: Experiment = get_object_or_404(experiments, slug=slug)
    return experiment


def may_edit(request: HttpRequest, experiment: Experiment) -> bool:
    return Experiment.objects.editable_by(request.user).filter(pk=experiment.pk).exists()


def get_chosen_wave(request: HttpRequest, experiment: Experiment) -> Wave | None:
    """Return the wave of the parameter `wave`, a number or label, or None without it. Raise Http404 if unknown."""
    name = request.GET.get("wave", "")
    try:
        wave: Wave | None = experiment.find_wave(name) if name else None
    except UnknownNameError as error:
        raise Http404 from error
    return wave


def get_visible_run(request: HttpRequest, pk: int) -> Run:
    run: Run = get_object_or_404(Run.objects.visible_to(request.user).with_design(), pk=pk)
    if run.experiment.is_stored:
        raise RowsAreStored(run.experiment)
    return run


def get_editable_run(request: HttpRequest, pk: int) -> Run:
    run = get_visible_run(request, pk)
    get_editable_experiment(request, run.experiment.slug)
    return run


def get_visible_batch(request: HttpRequest, pk: int) -> ProviderBatch:
    batches = ProviderBatch.objects.visible_to(request.user).select_related("endpoint", "run__experiment")
    batch: ProviderBatch = get_object_or_404(batches, pk=pk)
    return batch


def get_posted_data(request: HttpRequest) -> tuple[Any, Any]:
    """Return data and files for a form, or (None, None) for a GET, so that the form stays unbound."""
    return (request.POST, request.FILES) if request.method == "POST" else (None, None)
