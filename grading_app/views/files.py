"""The files of an experiment: its tables, bundles, participant-style data and snapshots."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from datasets_app.job_texts import describe_snapshot_job
from datasets_app.models import BackgroundJob
from evalsite.lib.permissions import readers_only
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.exports import ParticipantsForm, SnapshotForm
from grading_app.models import Rubric, Snapshot, SupersededVerdict
from grading_app.publish.export.file_formats import RECORDS, ExportError, export_chunks
from grading_app.publish.export.parquet_process import parquet_from_process
from grading_app.publish.export.wide_tables import NO_PARTICIPANTS
from grading_app.tables.reports import SnapshotTable
from runs_app.models import Experiment, Wave
from runs_app.views.permissions import get_chosen_wave, get_visible_experiment, may_edit

CONTENT_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
MAX_SNAPSHOTS = 50  # Snapshots on the page.
# Parameters of the trial list that are not export filters: the page and the experiment.
NOT_FILTERS = ("experiment", "after", "before", "page", "sort", "column")


@require_safe
@readers_only
@hides_model_names()
def experiment_files(request: HttpRequest, slug: str) -> HttpResponse:
    return render_files(request, get_visible_experiment(request, slug))


def render_files(
    request: HttpRequest, experiment: Experiment, snapshot_form: SnapshotForm | None = None
) -> HttpResponse:
    """Render the page. snapshot_form: one with errors."""
    wave = get_chosen_wave(request, experiment)
    context = {
        "experiment": experiment,
        "state": experiment.state,
        "waves": list(experiment.waves.all()),
        "wave": wave,
        "exports": _list_exports(experiment, wave),
        "participants": _make_participants_context(request, experiment) if experiment.dimensions.exists() else None,
        **_get_snapshot_context(experiment, snapshot_form, may_create=may_edit(request, experiment)),
    }
    return render(request, "grading_app/files.html", context)


def _list_exports(experiment: Experiment, wave: Wave | None) -> list[dict[str, str]]:
    """Return the most requested files. A chosen wave restricts the tables with waves."""
    wave_query = f"?{urlencode({'wave': wave.number})}" if wave else ""
    exports = [
        ("trials", "csv", wave_query, "Trials, CSV for spreadsheets"),
        ("trials", "jsonl", wave_query, "Trials, JSON lines"),
        ("trials", "parquet", wave_query, "Trials, Parquet"),
        ("answers", "csv", wave_query, "Answers with inputs, targets and scores, CSV"),
        ("gradings", "csv", wave_query, "Gradings, CSV"),
        ("gradings", "jsonl", wave_query, "Gradings, JSON lines"),
        ("attempts", "csv", wave_query, "Attempts, CSV"),
        ("items", "csv", "", "Items, CSV"),
        ("ledger", "csv", "", "Ledger, CSV"),
    ]
    if experiment.grade_conditions.filter(rubric__kind=Rubric.Kind.PAIRWISE).exists():
        exports.append(("preferences", "csv", "", "Preferences between two answers, CSV"))
    if SupersededVerdict.objects.filter(condition__experiment=experiment).exists():
        exports.append(("superseded", "csv", wave_query, "Former verdicts, CSV"))
    if experiment.dataset.is_parametric:
        exports.append((RECORDS, "jsonl", "", "Records of parametric tasks, NDJSON"))
    if experiment.rating_queues.exists():
        exports.append(("ratings", "csv", "", "Ratings by people, CSV"))
    if experiment.dimensions.exists():
        exports.append(("rating_counts", "csv", wave_query, "Counts of each scale point, CSV"))
    return [
        {"label": label, "address": reverse("experiment_export", args=[experiment.slug, table, form]) + query}
        for table, form, query, label in exports
    ]


def _make_participants_context(request: HttpRequest, experiment: Experiment) -> dict[str, Any]:
    """Return the texts and addresses of the form for participant-style data."""
    formats = {"csv": "CSV", "jsonl": "JSON lines", "parquet": "Parquet"}
    return {
        "note": NO_PARTICIPANTS,
        "form": ParticipantsForm(request.GET, experiment),
        "formats": [
            {"label": label, "address": reverse("experiment_export", args=[experiment.slug, "participants", form])}
            for form, label in formats.items()
        ],
    }


def _get_snapshot_context(experiment: Experiment, form: SnapshotForm | None, *, may_create: bool) -> dict[str, Any]:
    """Return the snapshots, the job of the latest request if it has no snapshot yet, and the form unless one is open.

    After a failed job, the form has its entries.
    """
    snapshots = list(Snapshot.objects.filter(experiment=experiment)[:MAX_SNAPSHOTS])
    job = BackgroundJob.objects.filter(subject=Snapshot.get_job_subject(experiment)).first()
    if job and job.ended_at and (not job.problem or (snapshots and snapshots[0].created_at > job.ended_at)):
        job = None
    problem = job.problem or job.find_stop() if job else ""
    may_request = may_create and (job is None or bool(problem))
    initial = {name: job.parameters[name] for name in ("label", "reason")} if job else {}
    return {
        "snapshots": SnapshotTable(snapshots, experiment.slug),
        "snapshot_job": job,
        "snapshot_problem": problem,
        "snapshot_texts": describe_snapshot_job(job) if job else None,
        "snapshot_form": (form or SnapshotForm(initial=initial)) if may_request else None,
    }


@require_safe
@readers_only
def experiment_export(
    request: HttpRequest, slug: str, table: str, file_format: str
) -> HttpResponse | StreamingHttpResponse:
    """Stream a table of the experiment. The address may hold the filters of the trial list.

    A browser with wrong options of participant-style data is sent back to their form, a program gets the error.
    """
    experiment = get_visible_experiment(request, slug)
    if table == "participants" and request.get_preferred_type(["text/plain", "text/html"]) == "text/html":
        form = ParticipantsForm(request.GET, experiment)
        if form.is_bound and not form.is_valid():
            return redirect(reverse("experiment_files", args=[slug], query=request.GET, fragment="participants"))
    filters = {name: str(value) for name, value in request.GET.items() if value and name not in NOT_FILTERS}
    try:
        if file_format == "parquet":
            chunks = parquet_from_process(experiment, table, filters)
        else:
            chunks = export_chunks(experiment, table, file_format, filters)
    except ExportError as error:
        return HttpResponseBadRequest(str(error), content_type="text/plain; charset=utf-8")
    response = StreamingHttpResponse(chunks, content_type=CONTENT_TYPES[file_format])
    response["Content-Disposition"] = f'attachment; filename="{experiment.slug}-{table}.{file_format}"'
    return response
