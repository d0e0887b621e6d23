"""The results of an experiment: its tables, its figures, and its rows as files."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.text.hashing import hash_content
from evalsite.lib.web.model_names import hides_model_names
from grading_app.export.file_formats import RECORDS, ExportError, export_chunks
from grading_app.export.parquet_process import parquet_from_process
from grading_app.export.wide_tables import NO_PARTICIPANTS
from grading_app.forms.exports import ParticipantsForm, SnapshotForm
from grading_app.forms.rules import RuleForm
from grading_app.models import BlindReading, Rubric, Snapshot, SnapshotJob, SupersededVerdict
from grading_app.reports.figures import FIGURES
from grading_app.reports.frame_cache import fingerprint_results, get_figure_svg, get_frames
from grading_app.reports.frames import Frames, ScoreLine, load_condition_labels
from grading_app.reports.pooled_waves import find_pooled_waves
from grading_app.reports.stored_results import FigureTexts, get_results
from grading_app.scoring.grading import read_rules
from grading_app.statistics.intervals import STUDENT
from grading_app.statistics.known_coverage import (
    describe_share_coverage,
    describe_skew_coverage,
    describe_uneven_coverage,
)
from grading_app.tables.reports import SnapshotTable
from grading_app.tables.results import AnswerTable, ScoreTable
from grading_app.views.blind import get_blind_context
from grading_app.views.leaderboard import get_leaderboard_context
from grading_app.views.result_tables import make_requested_file
from grading_app.views.svg_figures import make_figure_context, read_theme, read_width, svg_policy
from runs_app.grading_interface import GRADE
from runs_app.models import Experiment, Wave
from runs_app.monitoring.progress import load_experiment_state
from runs_app.views.permissions import get_chosen_wave, get_editable_experiment, get_visible_experiment, may_edit

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
def experiment_results(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    return render_results(request, experiment, RuleForm() if may_edit(request, experiment) else None)


def render_results(
    request: HttpRequest, experiment: Experiment, rules: RuleForm | None, snapshot_form: SnapshotForm | None = None
) -> HttpResponse:
    """Render the page. `rules` is None if the user may not change the experiment. snapshot_form: one with errors."""
    slug = experiment.slug
    wave = get_chosen_wave(request, experiment)
    blind = get_blind_context(request, experiment)
    blind_reading = blind["blind"]
    letters = blind_reading.assign_letters() if blind_reading else None
    labels = load_condition_labels(experiment, wave, letters)
    board, tables = get_leaderboard_context(request, experiment, wave, labels, letters)
    if (file := make_requested_file(request, tables, f"{slug}-results")) is not None:
        return file
    cached = get_results(experiment, wave, blind_reading)
    context = {
        "experiment": experiment,
        "state": load_experiment_state(experiment),
        "waves": list(experiment.waves.all()),
        "wave": wave,
        "pooled": find_pooled_waves(experiment, wave),
        **board,
        **blind,
        "results_cached": cached,
        "exports": _list_exports(experiment, wave),
        "participants": _make_participants_context(request, experiment) if experiment.dimensions.exists() else None,
        "rule_form": rules,
        **_get_snapshot_context(experiment, snapshot_form, may_create=rules is not None),
    }
    if cached.value is not None:
        frames = cached.value.summary
        lines = frames.lines
        state = _get_figure_state(cached.fingerprint, blind_reading)
        figure_query = {"state": state[:12]} | ({"wave": str(wave.number)} if wave else {})
        context |= {
            "answers": _make_answer_table(experiment, frames),
            "scores": ScoreTable(lines) if lines else None,
            "scores_note": _describe_intervals(lines),
            "figures": [make_result_figure(texts, slug, figure_query) for texts in cached.value.figures],
        }
    return render(request, "grading_app/experiment_results.html", context)


@require_safe
@readers_only
@svg_policy
def experiment_figure(request: HttpRequest, slug: str, name: str) -> HttpResponse:
    """Return a figure as SVG. `theme` is light or dark, by default the reader's. `width` is narrow or half a page."""
    experiment = get_visible_experiment(request, slug)
    wave = get_chosen_wave(request, experiment)
    figure, theme, width = FIGURES.get(name), read_theme(request), read_width(request)
    if figure is None:
        raise Http404
    reading = BlindReading.objects.hidden_for(request.user).filter(experiment=experiment).first()
    cached = get_results(experiment, wave, reading)
    if reading and cached.value is None:
        raise Http404
    fingerprint = cached.fingerprint if cached.value else fingerprint_results(experiment, wave)
    state = _get_figure_state(fingerprint, reading)

    def frames() -> Frames:
        return cached.value.frames if cached.value else get_frames(experiment, wave, fingerprint)

    svg = get_figure_svg(figure, frames, state, width, theme)
    if svg is None:
        raise Http404
    caching = "private, max-age=604800, immutable" if request.GET.get("state") == state[:12] else "private, no-store"
    return HttpResponse(svg, content_type="image/svg+xml", headers={"Cache-Control": caching})


@require_POST
@members_only
@hides_model_names()
def experiment_grade(request: HttpRequest, slug: str) -> HttpResponse:
    """Request grades by the chosen rules; the task queue computes them."""
    from django_q.tasks import async_task

    experiment = get_editable_experiment(request, slug)
    form = RuleForm(request.POST)
    if not form.is_valid():
        return render_results(request, experiment, form)
    async_task(GRADE, experiment.pk, form.chosen_rules, request.user.get_username())
    rule_names = ", ".join(rule.text for rule in read_rules(form.chosen_rules))
    messages.success(request, f"Grading by {rule_names} has started. Scores appear here as they are ready.")
    return redirect("experiment_results", slug)


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
            return redirect(reverse("experiment_results", args=[slug], query=request.GET, fragment="participants"))
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


def _get_figure_state(fingerprint: str, reading: BlindReading | None) -> str:
    """Return the state behind the figures: the rows, and the letters of a blind reading."""
    return hash_content([fingerprint, reading.pk]) if reading else fingerprint


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
    job = SnapshotJob.objects.filter(experiment=experiment).first()
    if job and job.ended_at and (not job.problem or (snapshots and snapshots[0].created_at > job.ended_at)):
        job = None
    problem = job.problem or job.find_stop() if job else ""
    may_request = may_create and (job is None or bool(problem))
    initial = {"label": job.label, "reason": job.reason} if job else {}
    return {
        "snapshots": SnapshotTable(snapshots, experiment.slug),
        "snapshot_job": job,
        "snapshot_problem": problem,
        "snapshot_form": (form or SnapshotForm(initial=initial)) if may_request else None,
    }


def _make_answer_table(experiment: Experiment, frames: Frames) -> AnswerTable | None:
    if not any(row.done or row.failed for row in frames.outcomes):
        return None
    return AnswerTable(frames.outcomes, slug=experiment.slug, labels=frames.labels, rated=bool(frames.dimensions))


def _describe_intervals(lines: list[ScoreLine]) -> str:
    """Return a note on the intervals of this table."""
    notes = ["Standard errors are clustered by item."]
    if any(not line.measure.is_share and not line.score.method.startswith(STUDENT) for line in lines):
        notes.append("Intervals of means: score intervals with Student's t over items, which stay on the scale.")
    if note := describe_skew_coverage(line.score.items for line in lines if line.score.method.startswith(STUDENT)):
        notes.append(note)
    if any(line.measure.is_share for line in lines):
        has_repeats = any(line.measure.is_share and line.score.n > line.score.items for line in lines)
        notes.append(
            f"Intervals of shares: modified Wilson{', at the effective number of answers' if has_repeats else ''}."
        )
        items_once = [
            line.score.items
            for line in lines
            if line.measure.is_share and line.score.n == line.score.items and line.score.low is not None
        ]
        counts = [
            (line.score.n, line.score.items) for line in lines if line.measure.is_share and line.score.low is not None
        ]
        notes += filter(None, (describe_share_coverage(items_once), describe_uneven_coverage(counts)))
    if any(line.score.missing for line in lines):
        notes.append("Answers without a score are excluded and counted separately.")
    return " ".join(notes)


def make_result_figure(texts: FigureTexts, slug: str, query: dict[str, str]) -> dict[str, Any]:
    """Return a figure of the results for the page, with the table of its numbers."""
    return make_figure_context(
        texts.name,
        reverse("experiment_figure", args=[slug, texts.name]),
        query,
        title=texts.title,
        caption=texts.caption,
        alt=texts.alt,
        size=texts.size,
        narrow_size=texts.narrow_size,
        table=texts.table,
    )


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
