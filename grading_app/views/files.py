"""The files of an experiment: printed figures, tables, bundles, participant-style data and snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import django_tables2 as tables
from django.contrib import messages
from django.http import (
    FileResponse,
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    JsonResponse,
    StreamingHttpResponse,
)
from django.shortcuts import redirect, render
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe

from datasets_app.job_texts import SNAPSHOT_JOB
from datasets_app.models import BackgroundJob
from datasets_app.views.permissions import get_visible_dataset
from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.model_names import hides_model_names
from grading_app.models import BlindReading, Rubric, Snapshot, SupersededVerdict
from grading_app.publish.export.bundle_kinds import ANALYSIS, DATASET, DESIGN
from grading_app.publish.export.bundles import refuse_bundle
from grading_app.publish.export.command_process import parquet_from_process, stream_command
from grading_app.publish.export.file_formats import RECORDS, ExportError, export_chunks
from grading_app.publish.export.publication import PUBLICATION
from grading_app.publish.export.snapshots import SnapshotError, refuse_while_live
from grading_app.publish.export.wide_tables import NO_PARTICIPANTS
from grading_app.publish.figures.figure_set import HIDE_NAMES, FigureSource
from grading_app.publish.figures.print_style import PICTURE_CONTENT_TYPES, PrintStyle
from grading_app.publish.forms import FigureForm, ParticipantsForm, SnapshotForm
from grading_app.results.figure import Figure
from grading_app.results.scope import ScopeForm
from grading_app.results.table import CONTENT_TYPES as TABLE_TYPES
from grading_app.views.tables_and_figures import STATE_LENGTH, make_svg_response, read_theme, read_width, svg_policy
from runs_app.models import Experiment, Wave
from runs_app.tables.columns import CountColumn, TimeColumn
from runs_app.views.permissions import get_chosen_wave, get_editable_experiment, get_visible_experiment, may_edit

TABLE_FORMATS = {"csv": "csv", "md": "md", "tex": "latex"}
"""The formats of `ResultTable` by the suffix in the address."""
FILE_FORMATS = (*PICTURE_CONTENT_TYPES, *TABLE_FORMATS)

MAX_VALUE = 200
EXPORT_CONTENT_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
MAX_SNAPSHOTS = 50  # Snapshots on the page.
# Parameters of the trial list that are not export filters: the page and the experiment.
NOT_FILTERS = ("experiment", "after", "before", "page", "sort", "column")
ALL = "all"
EXPERIMENT_KINDS = (DESIGN, ANALYSIS, ALL, PUBLICATION)
SNAPSHOT_TASK = "grading_app.tasks.snapshot_experiment"
# The time limit of a task that writes all tables. It is below the retry time of the queue.
TIMEOUT_SECONDS = 3000
DIGEST_PART = 16  # Digits of a digest after which a line may break.


class SnapshotTable(tables.Table):
    created_at = TimeColumn(seconds=True, verbose_name="Time")
    reason = tables.Column(verbose_name="Purpose", empty_values=())
    actor = tables.Column(verbose_name="By")
    trials = CountColumn(accessor="rows__trials")
    gradings = CountColumn(accessor="rows__gradings")
    digest = tables.Column(verbose_name="Digest (sha256)")
    size = tables.Column(verbose_name="File")

    class Meta:
        orderable = False

    def __init__(self, snapshots: list[Snapshot], slug: str) -> None:
        super().__init__(snapshots)
        self.slug = slug

    def render_reason(self, record: Snapshot) -> SafeString | str:
        if not record.label:
            return record.reason
        return format_html("<strong>{}</strong> {}", record.label, record.reason)

    def render_digest(self, value: str) -> SafeString:
        parts = ((value[start : start + DIGEST_PART],) for start in range(0, len(value), DIGEST_PART))
        return format_html('<span class="mono">{}</span>', format_html_join("", "{}<wbr>", parts))

    def render_size(self, record: Snapshot) -> SafeString:
        return format_html(
            '<a href="{}" download aria-label="Snapshot {} as a zip">{} zip, {}</a>',
            reverse("snapshot_file", args=[self.slug, record.digest]),
            record.digest[:12],
            tags.icon("download"),
            filesizeformat(record.size),
        )


@require_safe
@readers_only
def experiment_figures(request: HttpRequest, slug: str) -> HttpResponse:
    """Show every figure in the chosen style, with its files. Every choice is in the address."""
    experiment = get_visible_experiment(request, slug)
    wave = get_chosen_wave(request, experiment)
    source = FigureSource(experiment, request.GET, wave)
    form = FigureForm(request.GET, source)
    listed = source.list_figures() if form.is_valid() else []
    form.offer_figures(listed, are_all=not source.is_waiting)
    figures = [one for one in listed if form.is_valid() and form.cleaned_data["only"] in ("", one.name)]
    context = {
        "experiment": experiment,
        "state": experiment.state,
        "form": form,
        "figures": [_make_figure_context(request, experiment, figure, form.style) for figure in figures],
        "is_waiting": source.is_waiting,
        "all_pdf": _get_file_url(request, experiment, "all", "pdf"),
        "summary": reverse("figures_summary", args=[slug], query={"wave": wave.number} if wave else None),
    }
    return render(request, "grading_app/figures.html", context)


def _make_figure_context(
    request: HttpRequest, experiment: Experiment, figure: Figure, style: PrintStyle
) -> dict[str, Any]:
    files = [(kind.upper(), _get_file_url(request, experiment, figure.name, kind)) for kind in FILE_FORMATS]
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "alt": figure.alt,
        "size": style.measure(figure),
        "address": files[0][1],
        "files": files,
        "page": reverse(figure.page, args=[experiment.slug]),
        "is_printed": True,
    }


def _get_file_url(request: HttpRequest, experiment: Experiment, name: str, file_format: str) -> str:
    """Return the address of a file. The parameter `mm` marks a printed figure."""
    query = request.GET.copy()
    for parameter, values in list(query.lists()):
        if max(map(len, values), default=0) > MAX_VALUE:  # It is no valid option, and a page has a hundred such links.
            del query[parameter]
    query.setdefault("mm", "")
    return f"{reverse('figure_file', args=[experiment.slug, name, file_format])}?{query.urlencode()}"


def _hides_names(request: HttpRequest) -> bool:
    name, _, suffix = request.path.rpartition("/")[2].rpartition(".")
    return suffix == "svg" and "mm" not in request.GET and name.partition("-")[0] in HIDE_NAMES


@require_safe
@readers_only
@svg_policy
@hides_model_names(when=_hides_names)
def figure_file(request: HttpRequest, slug: str, name: str, file_format: str) -> HttpResponse | StreamingHttpResponse:
    """Return a figure as SVG, PNG or PDF, or the table behind it as CSV, Markdown or LaTeX.

    An SVG without the parameter `mm` is the picture of a page: `theme` is light or dark, by default the reader's, and
    `width` is narrow or half a page. All other pictures are in print style.
    """
    experiment = get_visible_experiment(request, slug)
    is_on_page = file_format == "svg" and "mm" not in request.GET
    blind = BlindReading.objects.hidden_for(request.user).filter(experiment=experiment).first() if is_on_page else None
    source = FigureSource(experiment, request.GET, get_chosen_wave(request, experiment), blind)
    if is_on_page:
        theme, width = read_theme(request), read_width(request)
        figure = source.find_figure(name)
        choices = sorted((key, value) for key, value in request.GET.items() if key not in ("theme", "width", "state"))
        state = f"{slug} {choices} {source.state}" if source.state else ""
        response = make_svg_response(figure, width, theme, state=state)
        is_current = bool(source.state) and request.GET.get("state") == source.state[:STATE_LENGTH]
        response["Cache-Control"] = "private, max-age=604800, immutable" if is_current else "private, no-store"
        return response
    form = FigureForm(request.GET, source)
    if not form.is_valid():
        return HttpResponseBadRequest(get_first_error(form), content_type="text/plain; charset=utf-8")
    if (name, file_format) == ("all", "pdf"):
        # Many figures take long, so a separate process makes one PDF of them.
        arguments = ["figures", experiment.slug, "--format", "pdf", "--out", "-", f"--query={request.GET.urlencode()}"]
        stream = StreamingHttpResponse(stream_command(arguments), content_type="application/pdf")
        stream["Content-Disposition"] = f'attachment; filename="{experiment.slug}-figures.pdf"'
        return stream
    figure = source.find_figure(name) if file_format in FILE_FORMATS else None
    if figure is None:
        raise Http404
    if file_format in TABLE_FORMATS:
        table_format = TABLE_FORMATS[file_format]
        content, kind = figure.table().render(table_format).encode(), TABLE_TYPES[table_format]
    else:
        content, kind = form.style.write(figure.draw, file_format), PICTURE_CONTENT_TYPES[file_format]  # type: ignore[arg-type]
    disposition = "inline" if file_format == "svg" else "attachment"
    headers = {"Content-Disposition": f'{disposition}; filename="{slug}-{name}.{file_format}"'}
    return HttpResponse(content, content_type=kind, headers=headers)


@require_safe
@readers_only
def figures_summary(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the number of items, samples per item and correlations as JSON."""
    experiment = get_visible_experiment(request, slug)
    source = FigureSource(experiment, request.GET, get_chosen_wave(request, experiment))
    return JsonResponse(source.summarize_ratings(), json_dumps_params={"indent": 1})


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
    # A job is shown until its snapshot is there. After a failed job, the form has its entries.
    snapshots = list(Snapshot.objects.filter(experiment=experiment)[:MAX_SNAPSHOTS])
    job = BackgroundJob.objects.filter(subject=Snapshot.get_job_subject(experiment)).first()
    if job and job.ended_at and (not job.problem or (snapshots and snapshots[0].created_at > job.ended_at)):
        job = None
    problem = job.problem or job.find_stop() if job else ""
    may_request = may_edit(request, experiment) and (job is None or bool(problem))
    initial = {name: job.parameters[name] for name in ("label", "reason")} if job else {}
    snapshot_context: dict[str, Any] = {
        "snapshots": SnapshotTable(snapshots, experiment.slug),
        "snapshot_job": job,
        "snapshot_problem": problem,
        "snapshot_texts": SNAPSHOT_JOB if job else None,
        "snapshot_form": (snapshot_form or SnapshotForm(initial=initial)) if may_request else None,
    }
    context = {
        "experiment": experiment,
        "state": experiment.state,
        "waves": list(experiment.waves.all()),
        "wave": wave,
        "exports": _list_exports(experiment, wave),
        "participants": _make_participants_context(request, experiment) if experiment.dimensions.exists() else None,
        **snapshot_context,
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
    response = StreamingHttpResponse(chunks, content_type=EXPORT_CONTENT_TYPES[file_format])
    response["Content-Disposition"] = f'attachment; filename="{experiment.slug}-{table}.{file_format}"'
    return response


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
            form = ScopeForm(request.GET, experiment)
            scope = form.get_scope()
            if scope is None:
                problems = [
                    f"{form.fields[name].label}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()
                ]
                raise SnapshotError(" ".join(problems).rstrip(".") or "There is no score to analyse yet")
            scope_parameters = scope.parameters
            options = [f"--query={scope_parameters}"]
    except SnapshotError as error:
        messages.error(request, f"{error}.")
        return redirect("experiment_results", slug)
    return _stream(request, [kind, slug, *options], f"{slug}-{kind}.zip")


def _stream(request: HttpRequest, arguments: Sequence[str], name: str) -> StreamingHttpResponse:
    by = f"--user={request.user.get_username()}"
    chunks: Iterator[bytes] = stream_command(["bundle", *arguments, "--out=-", by])
    response = StreamingHttpResponse(chunks, content_type="application/zip")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_POST
@members_only
@hides_model_names()
def snapshot_make(request: HttpRequest, slug: str) -> HttpResponse:
    """Request a snapshot; the task queue writes it. While one is requested, a second request changes nothing."""
    experiment = get_editable_experiment(request, slug)
    form = SnapshotForm(request.POST)
    if form.is_valid():
        try:
            refuse_while_live(experiment)
        except SnapshotError as error:
            form.add_error(None, str(error))
    if not form.is_valid():
        return render_files(request, experiment, form)
    _, is_new = BackgroundJob.objects.request(
        Snapshot.get_job_subject(experiment),
        "snapshot",
        task=SNAPSHOT_TASK,
        timeout_s=TIMEOUT_SECONDS,
        by=request.user,
        parameters={**form.cleaned_data, "experiment": experiment.pk},
    )
    if not is_new:
        messages.info(request, "A snapshot is already being created, so no second one was requested.")
    return redirect(f"{reverse('experiment_files', args=[slug])}#snapshots")


@require_safe
@readers_only
def snapshot_file(request: HttpRequest, slug: str, digest: str) -> FileResponse:
    # Snapshots of the same second, label and author have the same digest, and share one file.
    snapshot = Snapshot.objects.filter(experiment=get_visible_experiment(request, slug), digest=digest).first()
    if snapshot is None:
        raise Http404
    try:
        file = snapshot.path.open("rb")
    except FileNotFoundError:
        raise Http404 from None
    name = f"{slug}-{digest[:12]}.zip"
    return FileResponse(file, as_attachment=True, filename=name, content_type="application/zip")
