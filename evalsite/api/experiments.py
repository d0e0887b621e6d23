"""Experiments: list, create, estimate, launch and control; their status, runs, rows, results and files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Annotated, Any, cast

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from ninja import Query, Router
from pydantic import Field

from evalsite.api import reach
from evalsite.api.problems import Problem
from evalsite.api.reach import FILTERED, find_wave, read_filters
from evalsite.api.schemas import (
    LARGEST_KEY,
    ChangedOut,
    CreateIn,
    EstimateOut,
    ExperimentOut,
    ExperimentPage,
    LaunchIn,
    LaunchOut,
    PageQuery,
    ReasonIn,
    ResultsOut,
    RowPage,
    RunOut,
    RunPage,
    ScopeIn,
    decode_cursor,
    encode_cursor,
    read_page,
)
from grading_app.grading.judging.grader_specs import create_experiment
from grading_app.publish.export.file_formats import Extract
from grading_app.results.leaderboard import BoardQuery
from grading_app.results.scores import ConditionScore, Measure
from grading_app.results.status_report import build_status_report
from grading_app.results.stored_results import get_results
from runs_app import run_control
from runs_app.experiment_files.spec_reader import read_spec, read_yaml
from runs_app.models import ApiAnswer, Experiment, Run, Wave
from runs_app.planning.cost_estimate import DesignSummary, summarise_experiment
from runs_app.planning.spec_io import build_spec
from runs_app.planning.work import PlanError

router = Router(auth=reach.AccessToken(reach.READ), tags=["Experiments"])
runs = reach.AccessToken(reach.RUN)
administers = reach.AccessToken(reach.ADMIN)
KEY_HEADER = "Idempotency-Key"  # A request that is sent twice with one key acts once.
ONCE = {
    "parameters": [
        {
            "in": "header",
            "name": KEY_HEADER,
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 128},
            "description": "A text of your choice. If you repeat the request with it, nothing happens twice.",
        }
    ]
}
NUMBERS = ("mean", "low", "high", "se", "sd", "method", "reason", "n", "items", "missing", "reasons", "effective_n")
Number = Annotated[int, Field(ge=1, le=LARGEST_KEY)]


@router.get("/experiments", response=ExperimentPage, summary="List experiments")
def experiments(request: HttpRequest, page: Query[PageQuery]) -> Any:
    """The experiments that your account may see, oldest first, with their progress."""
    rows = reach.list_experiments(request).select_related("dataset", "owner").with_totals()
    return read_page(rows, page, _write_experiment)


@router.post(
    "/experiments",
    response={201: ExperimentOut},
    auth=runs,
    url_name="experiments",
    summary="Create a draft",
    openapi_extra=ONCE,
)
def create(request: HttpRequest, body: CreateIn) -> Any:
    """Create a draft from an experiment file. Nothing runs before a launch."""
    reach.refuse_creation(request)
    if bool(body.file) == (body.design is not None):
        raise Problem(422, "The request has wrong or missing fields.", [("file", "send either `file` or `design`")])
    spec = read_yaml(body.file) if body.file else read_spec(body.design)

    def act() -> dict[str, Any]:
        experiment = create_experiment(spec, by=request.user)  # type: ignore[arg-type]
        return _write_experiment(Experiment.objects.filter(pk=experiment.pk).with_totals().get())

    response = answer_once(request, 201, act)
    response["Location"] = reverse("api:experiment", args=[spec.experiment])
    return response


@router.get("/experiments/{slug:name}", response=ExperimentOut, summary="Read an experiment")
def experiment(request: HttpRequest, name: str) -> Any:
    rows = reach.list_experiments(request).select_related("dataset", "owner").with_totals()
    return _write_experiment(get_object_or_404(rows, slug=name))


@router.get("/experiments/{slug:name}/design", response=dict[str, Any], summary="Read the design")
def design(request: HttpRequest, name: str) -> Any:
    """The content of the experiment file, with all texts written out. `POST /experiments` accepts it as `design`."""
    return build_spec(reach.get_experiment(request, name))


@router.get("/experiments/{slug:name}/status", response=dict[str, Any], summary="Read the status")
def status(request: HttpRequest, name: str) -> Any:
    """Trials by condition and wave, costs, judges, warnings and what the runs wait for, as `status --json` prints.

    A worker adds up the scores of a large experiment. They may be older than the counters; a warning says so.
    """
    return JsonResponse(build_status_report(reach.get_experiment(request, name), reads_stored=True))


@router.post("/experiments/{slug:name}/estimate", response=EstimateOut, summary="Estimate the cost of a launch")
def estimate(request: HttpRequest, name: str, body: ScopeIn) -> Any:
    """The trials and the cost of a launch now. This changes nothing."""
    return _write_estimate(reach.get_experiment(request, name), body)[0]


@router.post("/experiments/{slug:name}/launch", response=LaunchOut, auth=runs, summary="Launch", openapi_extra=ONCE)
def launch(request: HttpRequest, name: str, body: LaunchIn) -> Any:
    """Plan the missing trials and start them.

    With `max_usd`, the launch is refused with 409 unless the budget of the experiment or the ceiling of the estimate
    shows that it cannot cost more.
    """
    found = reach.get_editable_experiment(request, name)

    def act() -> dict[str, Any]:
        costs, summary = _write_estimate(found, body)
        if summary.estimate.problems:
            raise PlanError(summary.estimate.problems)
        _check_cost(found, summary, body)
        report = run_control.launch(
            found, by=request.user, wave=body.wave, pilot=body.pilot, approved=summary.estimate, policy=body.policy
        )
        return {
            "experiment": found.slug,
            "is_new": report.is_new,
            "summary": report.summary,
            "runs": report.run_ids,
            "trials_added": report.trials_added,
            "trials_total": report.trials_total,
            "notes": list(report.notes),
            "estimate": costs,
        }

    return answer_once(request, 200, act)


@router.post("/experiments/{slug:name}/pause", response=ChangedOut, auth=runs, summary="Pause")
def pause(request: HttpRequest, name: str, body: ReasonIn) -> Any:
    """No new calls start. Calls in flight finish and are kept."""
    found = reach.get_editable_experiment(request, name).runs.all()
    return _write_changed(run_control.pause(found, by=request.user, reason=body.reason))


@router.post("/experiments/{slug:name}/resume", response=ChangedOut, auth=runs, summary="Resume")
def resume(request: HttpRequest, name: str, body: ReasonIn) -> Any:
    found = reach.get_editable_experiment(request, name).runs.all()
    return _write_changed(run_control.resume(found, by=request.user, reason=body.reason))


@router.post("/experiments/{slug:name}/cancel", response=ChangedOut, auth=administers, summary="Cancel")
def cancel(request: HttpRequest, name: str, body: ReasonIn) -> Any:
    """Pending trials never start. A cancelled run cannot be resumed, so a reason is required."""
    found = reach.get_editable_experiment(request, name).runs.all()
    _require_reason(body)
    return _write_changed(run_control.cancel(found, by=request.user, reason=body.reason))


@router.post("/experiments/{slug:name}/archive", response=ExperimentOut, auth=administers, summary="Archive")
def archive(request: HttpRequest, name: str, body: ReasonIn) -> Any:
    """Archive an experiment without live runs. All rows are kept. A reason is required."""
    found = reach.get_editable_experiment(request, name)
    _require_reason(body)
    found.archive(by=request.user, reason=body.reason)
    return experiment(request, name)


@router.get("/experiments/{slug:name}/runs", response=RunPage, summary="List runs")
def experiment_runs(request: HttpRequest, name: str, page: Query[PageQuery]) -> Any:
    """The runs with their counters. Until a preregistered plan has run, those of outcomes are null."""
    found = reach.get_experiment(request, name)
    hides = found.runs_a_plan
    return read_page(found.runs.with_design(), page, lambda row: _write_run(row, hides_outcomes=hides))


@router.get("/runs/{int:number}", response=RunOut, summary="Read a run")
def run(request: HttpRequest, number: Number) -> Any:
    found = get_object_or_404(reach.list_runs(request), pk=number)
    return _write_run(found, hides_outcomes=found.experiment.runs_a_plan)


@router.get(
    "/experiments/{slug:name}/trials", response=RowPage, tags=["Rows"], summary="List trials", openapi_extra=FILTERED
)
def trials(request: HttpRequest, name: str, page: Query[PageQuery]) -> Any:
    """The trials of the design, with the columns of the export. The filters are those of the list of trials."""
    return _read_rows(request, name, "trials", page)


@router.get("/trials/{int:number}", response=dict[str, Any], tags=["Rows"], summary="Read a trial")
def trial(request: HttpRequest, number: Number) -> Any:
    """A trial of the design, with the columns of the export."""
    found = get_object_or_404(reach.list_trials(request).select_related("run__experiment"), pk=number)
    extract = Extract.of(found.run.experiment, "trials", {"run": str(found.run_id)})
    lines, _ = extract.read_lines((found.run_id, found.pk - 1), 1)
    row = json.loads(lines) if lines else None
    if row is None:
        raise Http404
    return row


@router.get(
    "/experiments/{slug:name}/gradings",
    response=RowPage,
    tags=["Rows"],
    summary="List gradings",
    openapi_extra=FILTERED,
)
def gradings(request: HttpRequest, name: str, page: Query[PageQuery]) -> Any:
    """The scores of the answers by rules, judges, panels and people, with the columns of the export."""
    return _read_rows(request, name, "gradings", page)


@router.get("/experiments/{slug:name}/results", response=ResultsOut, tags=["Rows"], summary="Read the results")
def results(
    request: HttpRequest,
    name: str,
    wave: Annotated[str, Field(max_length=80, description="A number or label; empty: all waves")] = "",
    by_category: bool = False,
) -> Any:
    """Means and shares by measure and condition, with their 95 % intervals, as on the results page.

    `by_category` lists the shares of each category. A worker adds up a large experiment. Until then the answer is 202:
    ask again after the seconds in `Retry-After`.
    """
    found = reach.get_experiment(request, name)
    content = load_results(found, find_wave(found, wave), by_category=by_category)
    if content is not None:
        return content
    return JsonResponse({"detail": "A worker adds up the answers."}, status=202, headers={"Retry-After": "3"})


def _read_rows(request: HttpRequest, name: str, table: str, page: PageQuery) -> HttpResponse:
    """Return a page of an exported table. The database writes its JSON, which is passed on unread."""
    found = reach.get_experiment(request, name)
    section, key = decode_cursor(page.after, 2)
    lines, last = Extract.of(found, table, read_filters(request)).read_lines((section, key), page.limit)
    cursor = json.dumps(encode_cursor(*last) if last else None).encode()
    content = b'{"items": [' + lines.rstrip(b"\n").replace(b"\n", b",") + b'], "next": ' + cursor + b"}"
    return HttpResponse(content, content_type="application/json")


def _require_reason(body: ReasonIn) -> None:
    if not body.reason.strip():
        raise Problem(422, "The request has wrong or missing fields.", [("reason", "is required")])


def _write_estimate(experiment: Experiment, scope: ScopeIn) -> tuple[dict[str, Any], DesignSummary]:
    summary = summarise_experiment(experiment, wave_label=scope.wave, pilot=scope.pilot, policy=scope.policy)
    costs = summary.estimate
    content = {
        "trials": costs.trials,
        "to_do": costs.to_do,
        "ceiling_usd": _write_money(costs.ceiling_usd),
        "expected_usd": _write_money(costs.expected_usd),
        "spent_usd": _write_money(experiment.read_totals().find_known_cost(experiment.spent_usd)),
        "max_usd": _write_money(experiment.max_usd),
        "coverage": costs.coverage,
        "needs_confirmation": summary.needs_confirmation,
        "is_over_budget": summary.is_over_budget,
        "problems": costs.problems,
        "warnings": costs.warnings,
    }
    return content, summary


def _check_cost(experiment: Experiment, summary: DesignSummary, body: LaunchIn) -> None:
    """Raise Problem if the launch may cost more than the request allows, or needs a confirmation that it lacks."""
    ceiling = summary.estimate.ceiling_usd
    if body.max_usd is not None:
        left = None if experiment.max_usd is None else experiment.max_usd - experiment.spent_usd
        if min((bound for bound in (ceiling, left) if bound is not None), default=body.max_usd + 1) > body.max_usd:
            most = "an unknown amount" if ceiling is None else f"up to {ceiling.normalize():f} US dollars"
            raise Problem(
                409,
                f"The launch may cost {most}. Raise max_usd, or set a budget in the design, which is a hard limit.",
                [("max_usd", "is less than the launch may cost")],
            )
    if summary.needs_confirmation and not body.accept_cost:
        limit = experiment.confirm_above_usd
        raise Problem(
            409,
            f"The maximum cost is unknown or above {limit}, the amount that the design wants confirmed.",
            [("accept_cost", "must be true")],
        )


def _write_experiment(row: Any) -> dict[str, Any]:
    totals = row.read_totals()
    return {
        "name": row.slug,
        "title": row.title,
        "status": row.status,
        "state": row.find_state(totals),
        "owner": row.owner.get_username(),
        "dataset": str(row.dataset),
        "created_at": row.created_at,
        "trials": totals.trials,
        "done": totals.done,
        "failed": totals.failed,
        "remaining": totals.remaining,
        "spent_usd": _write_money(totals.find_known_cost(row.spent_usd)),
        "max_usd": _write_money(row.max_usd),
    }


def _write_run(row: Run, *, hides_outcomes: bool) -> dict[str, Any]:
    """hides_outcomes: a preregistered plan has not run, so no number beside a name tells how its calls ended."""
    return {
        "id": row.pk,
        "experiment": row.experiment.slug,
        "condition": row.condition.condition_id,
        "stage": row.condition.stage,
        "model": row.condition.model.name,
        "wave": row.wave.number,
        "wave_label": row.wave.label,
        "status": row.status,
        "state": row.state,
        "stop_reason": row.current_stop_reason,
        "ended": row.n_done + row.n_failed,
        "spent_usd": None if hides_outcomes else _write_money(row.spent_usd),
        **{name: getattr(row, f"n_{name}") for name in ("trials", "pending", "running", "cancelled")},
        **{name: None if hides_outcomes else getattr(row, f"n_{name}") for name in ("done", "failed", "attempts")},
    }


def _write_changed(keys: list[int]) -> dict[str, Any]:
    return {"changed": len(keys), "runs": keys}


def _write_money(amount: Any) -> str | None:
    return None if amount is None else f"{amount:f}"


def load_results(experiment: Experiment, wave: Wave | None, *, by_category: bool = False) -> dict[str, Any] | None:
    """Return the scores of the results page, or None until a worker has added up a large experiment.

    by_category: the scores of each category, of measures that are shares.
    """
    cached = get_results(BoardQuery(experiment, wave))
    if cached.value is None:
        return None
    frames = cached.value.summary
    scores = [
        _write_score(found.measure, label, category, conditions[key])
        for found in frames.scores
        for key, label in frames.labels.items()
        for category, conditions in (found.categories.items() if by_category else [(None, found.conditions)])
        if key in conditions
    ]
    return {
        "experiment": experiment.slug,
        "wave": wave.number if wave else None,
        "as_of": cached.as_of,
        "is_fresh": cached.is_fresh,
        "scores": scores,
    }


def _write_score(measure: Measure, condition: str, category: str | None, score: ConditionScore) -> dict[str, Any]:
    return {
        "measure": measure.label,
        "is_share": measure.is_share,
        "condition": condition,
        "category": category,
        "of": score.planned,
        **{name: getattr(score, name) for name in NUMBERS},
    }


def answer_once(request: HttpRequest, status: int, act: Callable[[], dict[str, Any]]) -> JsonResponse:
    """Return what `act` returns, or the stored answer if the account sent this request before with the same key.

    The key and the effects of `act` are one transaction. A second request waits for the first one: the unique index
    holds it until the first transaction ends. After an error nothing is stored, so the request can be repeated.
    """
    key = request.headers.get(KEY_HEADER, "")
    if not key:
        return JsonResponse(act(), status=status)
    if len(key) > 128 or not key.isprintable():
        raise Problem(
            422, "The idempotency key cannot be used.", [(KEY_HEADER, "must have 1 to 128 printable characters")]
        )
    request_hash = hashlib.sha256(
        b"\n".join([str(request.method).encode(), request.get_full_path().encode(), request.body])
    ).hexdigest()
    with transaction.atomic():
        ApiAnswer.objects.filter(user=request.user.pk, created_at__lt=timezone.now() - ApiAnswer.KEPT).delete()
        row, is_new = ApiAnswer.objects.get_or_create(
            user_id=cast(int, request.user.pk), key=key, defaults={"request_hash": request_hash}
        )
        if row.request_hash != request_hash:
            raise Problem(422, "The idempotency key belongs to another request.", [(KEY_HEADER, "was used before")])
        if is_new:
            response = JsonResponse(act(), status=status)
            ApiAnswer.objects.filter(pk=row.pk).update(status=status, content=response.content.decode())
            return response
    replay = JsonResponse({}, status=row.status)
    replay.content = row.content
    replay["Idempotent-Replayed"] = "true"
    return replay
