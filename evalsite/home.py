"""The home page: what needs the reader, what runs, what has finished, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db.models import DateTimeField, F, Max, OuterRef, Q, Subquery, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_safe

from datasets_app.models import Dataset
from evalsite.lib.permissions import is_member, is_operator, is_reader
from evalsite.lib.text.number_format import format_count, format_money
from evalsite.lib.web.model_names import hides_model_names
from grading_app.results.headlines import load_headlines
from grading_app.results.raters.disagreements import count_open_disagreements
from grading_app.views.library import KINDS
from runs_app.llm.keys import read_key
from runs_app.models import Endpoint, Experiment, LanguageModel, LedgerEntry, Run
from runs_app.models.designs import Versioned
from runs_app.monitoring.blockers import find_blockers, find_endpoint_blocker
from runs_app.monitoring.progress import measure_pace

MAX_SHOWN = 8
MAX_COMPARED = 10_000  # Answers of finished experiments that are searched for disagreements.
MAX_STARRED = 12  # Of each kind.
NEW_VISIT = timedelta(minutes=30)  # A longer time without a look at this page begins a new visit.
SEEN_AT, VISITED_BEFORE = "home_seen_at", "home_visited_before"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that waits for the reader. `subject` names the row, `status` is its badge."""

    status: str
    subject: str
    text: str
    url: str
    action: str


@require_safe
@hides_model_names()
def home(request: HttpRequest) -> HttpResponse:
    if not is_reader(request.user):
        # Redirect a rater to the rating queue. Show a person without a role a page that says so, to avoid a loop.
        try:
            return redirect(reverse("rating_queue"))
        except NoReverseMatch:
            return render(request, "home_without_role.html")
    user = request.user
    # The end of the visit before this one, or None if this session has none. Store the time of this look.
    now, session = timezone.now(), request.session
    seen_at = parse_datetime(session.get(SEEN_AT, ""))
    if seen_at is None or now - seen_at > NEW_VISIT:
        session[VISITED_BEFORE] = session.get(SEEN_AT, "")
    if seen_at is None or now - seen_at > timedelta(minutes=1):
        session[SEEN_AT] = now.isoformat()
    last_visit = parse_datetime(session[VISITED_BEFORE])
    visible = (
        Experiment.objects.visible_to(user)
        .exclude(status__in=Experiment.ENDED)
        .with_star(user)
        .select_related("dataset", "owner")
        .annotate(finished_at=_select_last_end())
        .with_totals()
    )
    under_way = Run.objects.filter(status__in=Run.UNDER_WAY).values("experiment")
    running = [_describe(row) for row in visible.filter(pk__in=under_way)[:MAX_SHOWN]]
    with_ended_trials = Run.objects.filter(Q(n_done__gt=0) | Q(n_failed__gt=0)).values("experiment")
    ended = visible.exclude(pk__in=under_way).filter(pk__in=with_ended_trials)
    finished = [_describe(row) for row in ended.order_by(F("finished_at").desc(nulls_last=True), "-pk")[:MAX_SHOWN]]
    headlines = load_headlines([row["experiment"] for row in finished], user)
    for row in finished:
        row["headline"] = headlines.get(row["experiment"].pk)
        row["is_new"] = bool(last_visit and (at := row["experiment"].finished_at) and at > last_visit)
    for row in running:
        runs = list(row["experiment"].answer_runs)
        row["seconds_left"] = measure_pace(runs, row["totals"].remaining).seconds_left
    drafts = visible.exclude(pk__in=ended.values("pk")).exclude(pk__in=under_way)
    context = {
        "notices": [
            *_list_run_notices(user),
            *_list_endpoint_notices(user),
            *_list_disagreements(user, finished),
            *_list_approvals(user),
        ],
        "running": running,
        "finished": finished,
        "drafts": [_describe(row) for row in drafts[:MAX_SHOWN]],
        "spending": _add_up_spending(user),
        # The experiments and datasets that the user starred, by name. The lists show any further ones.
        "favourites": [
            {"kind": kind, "row": row}
            for kind, model in (("Experiment", Experiment), ("Dataset", Dataset))
            for row in model.objects.visible_to(user)
            .with_star(user)
            .filter(is_starred=True)
            .order_by("slug")[:MAX_STARRED]
        ],
        "steps": _list_setup_steps(user),
        "may_design": is_member(user),
        "sees_all_costs": is_operator(user),
    }
    return render(request, "home.html", context)


def _select_last_end() -> Subquery:
    """Return the time at which the last run of an experiment finished, also one of a judge, for an annotation."""
    runs = Run.objects.filter(experiment=OuterRef("pk")).order_by().values("experiment")
    return Subquery(runs.annotate(at=Max("finished_at")).values("at"), output_field=DateTimeField())


def _describe(experiment: Any) -> dict[str, Any]:
    """Return an experiment with its progress. It has the totals of `with_totals`."""
    totals = experiment.read_totals()
    return {
        "experiment": experiment,
        "totals": totals,
        "state": experiment.find_state(totals),
        "cost": totals.find_known_cost(experiment.spent_usd),
    }


def _list_run_notices(user: Any) -> Iterable[Notice]:
    """Yield what keeps the runs of experiments that the user may change from going on, one notice each experiment."""
    experiments = Experiment.objects.editable_by(user).filter(status=Experiment.Status.ACTIVE)
    halted = Q(status=Run.Status.STOPPED) | Q(status=Run.Status.PAUSED, paused_by_budget=True)
    blocked = Q(status=Run.Status.RUNNING, n_pending__gt=0)
    runs = (
        Run.objects.filter(halted | blocked, experiment__in=experiments)
        .select_related("experiment", "condition__model__endpoint", "condition__sampler")
        .order_by("-experiment", "pk")
    )
    by_experiment: dict[Experiment, list[Run]] = {}
    for run in runs:
        by_experiment.setdefault(run.experiment, []).append(run)
    for experiment, its_runs in by_experiment.items():
        url = reverse("experiment_progress", args=[experiment.slug])
        stopped = [run for run in its_runs if run.status == Run.Status.STOPPED]
        over_budget = [run for run in its_runs if run.is_paused_by_budget]
        if stopped:
            text = f"{_count(len(stopped), 'run')} stopped. {stopped[0].current_stop_reason}"
            yield Notice("stopped", experiment.slug, text, url, "See why and resume")
        if over_budget:
            budget = format_money(experiment.max_usd) if experiment.max_usd is not None else "none"
            text = f"Budget reached: {format_money(experiment.spent_usd)} of {budget} spent."
            yield Notice("paused", experiment.slug, text, url, "Raise the budget")
        for blocker in find_blockers(its_runs):
            if blocker.kind != "budget" or not over_budget:
                yield Notice("waiting", experiment.slug, blocker.text, url, "See progress")


def _list_endpoint_notices(user: Any) -> Iterable[Notice]:
    """Yield the endpoints with models in use that cannot be called, for operators."""
    if not is_operator(user):
        return
    endpoints = Endpoint.objects.filter(is_active=True, models__is_active=True).distinct()
    for endpoint in endpoints:
        url = reverse("endpoint_edit", args=[endpoint.pk])
        if endpoint.key_env and not read_key(endpoint.key_env):
            text = f"Its key {endpoint.key_env} is not set."
            yield Notice("waiting", endpoint.name, text, url, "Set the key")
        elif blocker := find_endpoint_blocker(endpoint):
            yield Notice("waiting", endpoint.name, blocker.text, url, "Open the endpoint")


def _list_disagreements(user: Any, finished: list[dict[str, Any]]) -> Iterable[Notice]:
    """Yield the answers of finished experiments that the user may adjudicate and raters scored differently."""
    keys = [row["experiment"].pk for row in finished]
    editable = set(Experiment.objects.editable_by(user).filter(pk__in=keys).values_list("pk", flat=True))
    slugs, answers = {}, 0
    for row in finished:
        if row["experiment"].pk in editable and answers + row["totals"].done <= MAX_COMPARED:
            slugs[row["experiment"].pk], answers = row["experiment"].slug, answers + row["totals"].done
    for key, n in count_open_disagreements(slugs).items():
        text = f"Raters disagree on {_count(n, 'undecided answer')}."
        url = reverse("experiment_disagreements", args=[slugs[key]])
        yield Notice("waiting", slugs[key], text, url, "See disagreements")


def _list_approvals(user: Any) -> Iterable[Notice]:
    """Yield the number of drafts of each kind that the user may approve."""
    drafts = Dataset.objects.filter(status=Dataset.Status.DRAFT).count()
    if drafts and user.has_perm("datasets_app.approve_dataset"):
        url = reverse("dataset_list", query={"status": Dataset.Status.DRAFT})
        yield Notice("draft", "Datasets", f"{_count(drafts, 'draft')} can be approved.", url, "Review")
    for kind in KINDS.values():
        drafts = kind.model.objects.filter(status=Versioned.Status.DRAFT).count()
        if drafts and user.has_perm(kind.model.APPROVAL):
            url = reverse("library_list", args=[kind.slug])
            yield Notice("draft", kind.title, f"{_count(drafts, 'draft')} can be approved.", url, "Review")


def _count(n: int, noun: str) -> str:
    return f"{format_count(n)} {noun}{'' if n == 1 else 's'}"


def _add_up_spending(user: Any) -> dict[str, Any]:
    """Return what experiments that the user may see have cost this month, and those under way with their budgets."""
    now = timezone.localtime()
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    experiments = Experiment.objects.visible_to(user)
    entries = LedgerEntry.objects.filter(at__gte=month).filter(
        Q(run__experiment__in=experiments) | Q(experiment__in=experiments)
    )
    sums = entries.aggregate(paid=Sum("paid_usd"), unpriced=Sum("unpriced"))
    budgeted = experiments.filter(status=Experiment.Status.ACTIVE, max_usd__gt=0).filter(
        runs__status__in=[*Run.UNDER_WAY, Run.Status.PAUSED, Run.Status.STOPPED]
    )
    return {
        "month": month,
        "paid": sums["paid"] or Decimal(0),
        "unpriced": sums["unpriced"] or 0,
        "budgets": list(budgeted.distinct().order_by(F("max_usd") - F("spent_usd"))[:MAX_SHOWN]),
    }


def _list_setup_steps(user: Any) -> list[dict[str, Any]]:
    """Return the steps from an empty database to a first experiment, or [] once they are all done."""
    if not is_member(user):
        return []
    has_dataset = Dataset.objects.filter(status=Dataset.Status.APPROVED).exists()
    has_model = LanguageModel.objects.filter(is_active=True, endpoint__is_active=True).exists()
    has_experiment = Experiment.objects.visible_to(user).exists()
    if has_dataset and has_model and has_experiment:
        return []
    can_design = has_dataset and has_model
    return [
        _build_step("Import a dataset and have it approved", "dataset_list", has_dataset, "Datasets"),
        _build_step(
            "Add an endpoint and a model", "endpoint_list", has_model, "Endpoints", is_allowed=is_operator(user)
        ),
        _build_step(
            "Design an experiment",
            "experiment_new",
            has_experiment,
            "New experiment",
            is_allowed=can_design,
        ),
    ]


def _build_step(text: str, url_name: str, done: bool, label: str, *, is_allowed: bool = True) -> dict[str, Any]:
    try:
        url = reverse(url_name) if is_allowed and not done else ""
    except NoReverseMatch:
        url = ""
    return {"text": text, "url": url, "done": done, "label": label}
