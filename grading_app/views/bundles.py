"""The download of bundles: a dataset, a design, an analysis, or a whole study.

A separate process writes the file, because it reads every row and image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from datasets_app.views.permissions import get_visible_dataset
from evalsite.lib.permissions import readers_only
from grading_app.publish.export.bundle_kinds import ANALYSIS, DATASET, DESIGN
from grading_app.publish.export.bundles import refuse_bundle
from grading_app.publish.export.command_process import stream_command
from grading_app.publish.export.publication import PUBLICATION
from grading_app.publish.export.snapshots import SnapshotError, refuse_while_live
from grading_app.results.scope import ScopeForm
from runs_app.views.permissions import get_visible_experiment

ALL = "all"
EXPERIMENT_KINDS = (DESIGN, ANALYSIS, ALL, PUBLICATION)


@require_safe
@readers_only
def dataset_bundle(request: HttpRequest, slug: str, version: int) -> HttpResponse | StreamingHttpResponse:
    dataset = get_visible_dataset(request, slug, version)
    try:
        refuse_bundle(DATASET, dataset)
    except SnapshotError as error:
        messages.error(request, f"{error}.")
        return redirect(dataset)
    return _stream(request, [DATASET, str(dataset)], f"{slug}-{version}-dataset.zip")


@require_safe
@readers_only
def experiment_bundle(request: HttpRequest, slug: str, kind: str) -> HttpResponse | StreamingHttpResponse:
    """Stream a bundle of an experiment. The address of an analysis holds its scope."""
    experiment = get_visible_experiment(request, slug)
    if kind not in EXPERIMENT_KINDS:
        raise Http404
    options = []
    try:
        if kind in (ALL, PUBLICATION):
            refuse_while_live(experiment)
        else:
            refuse_bundle(kind, experiment)
        if kind == ANALYSIS:
            options = [f"--query={_read_scope_parameters(ScopeForm(request.GET, experiment))}"]
    except SnapshotError as error:
        messages.error(request, f"{error}.")
        return redirect("experiment_results", slug)
    return _stream(request, [kind, slug, *options], f"{slug}-{kind}.zip")


def _read_scope_parameters(form: ScopeForm) -> str:
    scope = form.get_scope()
    if scope is None:
        problems = [f"{form.fields[name].label}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()]
        raise SnapshotError(" ".join(problems).rstrip(".") or "There is no score to analyse yet")
    return scope.parameters


def _stream(request: HttpRequest, arguments: Sequence[str], name: str) -> StreamingHttpResponse:
    by = f"--user={request.user.get_username()}"
    chunks: Iterator[bytes] = stream_command(["bundle", *arguments, "--out=-", by])
    response = StreamingHttpResponse(chunks, content_type="application/zip")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
