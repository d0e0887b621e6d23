"""Start: the way of a new site to its first result, on one page with three steps.

The page keeps no state of its own: each step is done when its rows exist, so it can be left and taken up again. Each
button posts to the page itself and names its action in `do`. The address names an upload and, if chosen, a dataset.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.http import HttpResponseClientRefresh

from datasets_app import pending_uploads
from datasets_app.importing.column_map import SHEET
from datasets_app.models import BackgroundJob, Dataset, Item
from evalsite.lib.ops.installation import get_shipped_folder
from evalsite.lib.permissions import is_operator, members_only
from evalsite.lib.rating_scale import RatingScale
from evalsite.lib.web.addresses import read_key
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.start import ConnectForm, DataForm, QuestionForm, build_slug
from runs_app import first_study, model_lists
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.llm.keys import KeyRefused
from runs_app.llm.prompts import PromptError
from runs_app.llm.rating_parser import parse_rating
from runs_app.models import Dimension, Endpoint, Experiment, Preflight
from runs_app.models.preflights import prefetch_last_preflights
from runs_app.planning.work import PlanError
from runs_app.prompt_preview import build_turns
from runs_app.run_control import LaunchError
from runs_app.scorers.scorers import SCORERS, ScoredAnswer, ScoredItem
from runs_app.taskqueue.enqueue import enqueue_preflights

SAMPLE = "questions.jsonl"
KEY_CLASSES = (ErrorClass.UNAUTHORIZED, ErrorClass.FORBIDDEN, ErrorClass.MISSING_KEY)
RATING_SCALE = re.compile(r"-?\d{1,4}:-?\d{1,4}")
MAX_TICKED = 4  # More models are not ticked in advance, because each multiplies the cost.


@sensitive_post_parameters("key")
@require_http_methods(["GET", "HEAD", "POST"])
@members_only
@hides_model_names()
def start(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        action = ACTIONS.get(request.POST.get("do", ""))
        if action is None or (action in FOR_OPERATORS and not is_operator(request.user)):
            raise Http404
        return action(request)
    upload = _find_upload(request)
    job = upload.job if upload else None
    if job and job.result:
        named = job.result["dataset"]
        if wants_part(request):
            return HttpResponseClientRefresh()
        dataset = get_object_or_404(Dataset.objects.visible_to(request.user), slug=named[0], version=named[1])
        return redirect(f"{reverse('start')}?{urlencode({'dataset': dataset.pk})}#question")
    if upload and job and job.kind == "download" and job.state == "done":
        upload.request_job("preview", {}, leaves_out=True)
        job = upload.job
    if wants_part(request) and not (job and job.is_active):
        return HttpResponseClientRefresh()  # The upload has been read: show its first items.
    return _render(request, job=job)


# Models ---------------------------------------------------------------------------------------------------------------


def _fetch_models(request: HttpRequest) -> HttpResponse:
    """Store the key, fetch the server's list and save the endpoint, or show at which field it failed."""
    form = ConnectForm(request.POST, allows=request.POST.get("do") == "allow")
    if not form.is_valid():
        return _render(request, connect=form)
    entered = form.cleaned_data
    endpoint = first_study.prepare_endpoint(entered["provider"], entered["base_url"], form.allowed_host)
    endpoint.key_env = entered["key_env"] or endpoint.key_env
    try:
        with first_study.keep_key(endpoint, entered["key"]) if entered["key"] else nullcontext():
            if entered["model_id"]:
                listed = [model_lists.ListedModel(entered["model_id"], {})]
            else:
                listed = model_lists.fetch_models(endpoint)
            first_study.save_endpoint(endpoint, by=cast(User, request.user))
    except KeyRefused as problem:
        form.add_error("key", str(problem))
    except CallFailure as failure:
        form.add_error(*_explain_failure(failure, endpoint, entered))
    except ValidationError as error:
        form.add_error(None, error.messages)
    else:
        if entered["model_id"]:
            return _add_models(request, endpoint, model_lists.find_changes(endpoint, listed))
        return _render(request, endpoint=endpoint, changes=model_lists.find_changes(endpoint, listed))
    return _render(request, connect=form)


def _explain_failure(failure: CallFailure, endpoint: Endpoint, entered: dict[str, Any]) -> tuple[str, str]:
    """Return the field to correct, and what to do."""
    address = endpoint.base_url or endpoint.get_provider_display()
    if failure.error_class in KEY_CLASSES:
        field = "key_env" if entered["key_env"] else "key"
        return field, f"{address} refused the key ({failure.message.rstrip('.')}). Paste it again."
    if failure.error_class == ErrorClass.NOT_FOUND:
        return "base_url", f"{address} has no list of models. Check the end of the address, or enter a model ID."
    return "base_url", f"No list of models came from {address}: {failure.message.rstrip('.')}. Check the address."


def _add_chosen_models(request: HttpRequest) -> HttpResponse:
    """Add the chosen models. The list is fetched again, so that prices never come from the browser."""
    text = request.POST.get("endpoint", "")
    if not text.isdecimal() or len(text) > 18:
        raise Http404
    endpoint = get_object_or_404(Endpoint.objects.visible_to(request.user), pk=int(text))
    try:
        changes = model_lists.find_changes(endpoint, model_lists.fetch_models(endpoint))
    except CallFailure as failure:
        messages.error(request, f"The list of {endpoint} was not read: {failure.message}")
        return redirect("start")
    chosen = set(request.POST.getlist("model"))
    if picked := [change for change in changes if change.listed.model in chosen]:
        return _add_models(request, endpoint, picked)
    return _render(request, endpoint=endpoint, changes=changes, missing_choice=True)


def _add_models(request: HttpRequest, endpoint: Endpoint, picked: list[model_lists.ModelListChange]) -> HttpResponse:
    try:
        model_lists.apply_changes(endpoint, picked, by=request.user, reason="On Start")
    except ValidationError as error:
        messages.error(request, "; ".join(error.messages))
        return redirect("start")
    names = [change.listed.model for change in picked]
    enqueue_preflights(list(endpoint.models.filter(model__in=names).values_list("pk", flat=True)), by=request.user)
    return redirect("start")


# Data -----------------------------------------------------------------------------------------------------------------


def _find_upload(request: HttpRequest) -> pending_uploads.PendingUpload | None:
    token = request.POST.get("upload") or request.GET.get("upload", "")
    upload = pending_uploads.find_upload(request.user.pk, token)
    return upload if upload and upload.norms_of is None else None


def _read_data(request: HttpRequest) -> HttpResponse:
    form = DataForm(request.POST, request.FILES)
    if not form.is_valid():
        return _render(request, data=form)
    if repository := form.cleaned_data["repository"]:
        hub_request = {"repository": repository, "revision": "main"}
        upload = pending_uploads.stage_upload(
            request.user, {}, slug=build_slug(f"{repository.rpartition('/')[2]}."), about={}, download=hub_request
        )
        upload.request_job("download", hub_request)
        return _redirect_to_upload(upload)
    return _stage(request, form.read_file())


def _read_sample(request: HttpRequest) -> HttpResponse:
    content = (get_shipped_folder("samples") / SAMPLE).read_bytes()
    return _stage(request, SimpleUploadedFile("sample-questions.jsonl", content))


def _stage(request: HttpRequest, file: Any) -> HttpResponse:
    try:
        upload = pending_uploads.stage_upload(
            request.user, {"items": file}, slug=build_slug(file.name), about={}, previous=None
        )
    except pending_uploads.TooLarge as error:
        messages.error(request, f"This file {error}.")
        return redirect("start")
    upload.request_job("preview", {}, leaves_out=True)
    return _redirect_to_upload(upload)


def _read_sheet(request: HttpRequest) -> HttpResponse:
    """Read another sheet of the same spreadsheet."""
    upload = _require_upload(request)
    upload.request_job("preview", {SHEET: request.POST.get(SHEET, "")}, leaves_out=True)
    return _redirect_to_upload(upload)


def _import(request: HttpRequest) -> HttpResponse:
    upload = _require_upload(request)
    outcome = upload.outcome
    upload.request_job("import", outcome.mapping if outcome else {}, leaves_out=True)
    return _redirect_to_upload(upload)


def _retry_upload(request: HttpRequest) -> HttpResponse:
    upload = _require_upload(request)
    upload.retry_job()
    return _redirect_to_upload(upload)


def _require_upload(request: HttpRequest) -> pending_uploads.PendingUpload:
    upload = _find_upload(request)
    if upload is None:
        raise Http404
    return upload


def _redirect_to_upload(upload: pending_uploads.PendingUpload) -> HttpResponse:
    return redirect(f"{reverse('start')}?{urlencode({'upload': upload.token})}#data")


def _discard(request: HttpRequest) -> HttpResponse:
    if upload := _find_upload(request):
        upload.discard()
    return redirect(f"{reverse('start')}?other=1#data")


# The question ---------------------------------------------------------------------------------------------------------


def _get_dataset(request: HttpRequest) -> Dataset | None:
    key = request.POST.get("dataset") or request.GET.get("dataset")
    if key:
        return first_study.find_dataset(request.user, read_key(key) or 0)
    return None if "other" in request.GET else first_study.find_dataset(request.user)


def _get_item(dataset: Dataset) -> Item:
    item: Item = dataset.items.active().select_related("image", "dataset").order_by("position", "pk")[0]
    return item


def _read_question(request: HttpRequest) -> tuple[Dataset, QuestionForm]:
    dataset = _get_dataset(request)
    if dataset is None:
        raise Http404
    guess = first_study.guess_question(dataset)
    return dataset, QuestionForm(request.POST, rows=first_study.list_usable_models(request.user), guess=guess)


def _try(request: HttpRequest) -> HttpResponse:
    """Send one call about the first item, to the first ticked model."""
    dataset, form = _read_question(request)
    if form.is_valid():
        model = form.cleaned_data["models"][0]
        try:
            entered = form.cleaned_data
            call = first_study.try_question(
                entered["prompt"], _get_item(dataset), model, entered["dimension"], by=cast(User, request.user)
            )
        except PromptError as problem:
            form.add_error("prompt", str(problem))
        else:
            if wants_part(request):
                return _render_try(request, call, _name_reading(form))
            return _render(request, question=form, call=call)
    if wants_part(request):
        return render(request, "grading_app/partials/start_try.html", {"errors": form.errors.values()})
    return _render(request, question=form)


def _run(request: HttpRequest) -> HttpResponse:
    dataset, form = _read_question(request)
    if form.is_valid():
        entered = form.cleaned_data
        try:
            first_study.render_question(entered["prompt"], _get_item(dataset), entered["dimension"])
            experiment = first_study.launch_first(
                dataset, list(entered["models"]), entered["prompt"], entered, by=cast(User, request.user)
            )
        except PromptError as problem:
            form.add_error("prompt", str(problem))
        except (PlanError, LaunchError) as problem:
            form.add_error(None, [f"{text}." for text in getattr(problem, "problems", None) or [str(problem)]])
        else:
            return redirect("experiment_progress", experiment.slug)
    return _render(request, question=form)


@require_POST
@members_only
@hides_model_names()
def start_preview(request: HttpRequest) -> HttpResponse:
    """Show the prompt on the first item, and the cost of the first run, while the person types."""
    dataset, form = _read_question(request)
    form.is_valid()
    text = request.POST.get("prompt", "")
    context = _build_preview(
        dataset, text, list(form.cleaned_data.get("models", ())), form.cleaned_data.get("dimension")
    )
    return render(request, "grading_app/partials/start_preview.html", context)


@require_safe
@members_only
@hides_model_names()
def start_try(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the state of a try to the person who made it, for polls."""
    call = get_object_or_404(Preflight.objects.filter(by=cast(User, request.user)).exclude(about=""), pk=pk)
    return _render_try(request, call, request.GET.get("scorer", ""))


def _name_reading(form: QuestionForm) -> str:
    """Return how a try reads the answer: the name of a scorer, or the ends of a scale, such as `1:7`."""
    if form.rated:
        return f"{form['scale_min'].value()}:{form['scale_max'].value()}"
    return str(form["scorer"].value() or "")


def _render_try(request: HttpRequest, call: Preflight, scorer: str) -> HttpResponse:
    return render(request, "grading_app/partials/start_try.html", _build_try(request, call, scorer))


def _build_try(request: HttpRequest, call: Preflight, scorer: str) -> dict[str, Any]:
    """Return the answer of a try and, as the scorer reads it, its score."""
    dataset_name, _, key = call.about.partition(": ")
    datasets = Dataset.objects.visible_to(request.user).named(dataset_name)
    item = Item.objects.filter(dataset__in=datasets, key=key).first()
    score, ends = None, [int(end) for end in scorer.split(":")] if RATING_SCALE.fullmatch(scorer) else []
    if call.status == Preflight.Status.OK and ends and ends[0] < ends[1]:
        parsed = parse_rating(call.answer, RatingScale(ends[0], ends[1]))
        answer = ScoredAnswer(call.answer, rating=parsed.rating, rating_error=parsed.error or "")
        score = SCORERS["rating"].score(answer, ScoredItem("", ()), {})
    elif call.status == Preflight.Status.OK and item is not None and scorer in SCORERS:
        answer = ScoredAnswer(call.answer, truncated=call.finish_reason == "length", output_tokens=call.output_tokens)
        score = SCORERS[scorer].score(answer, ScoredItem(item.target, tuple(map(str, item.choices))), {})
    return {"call": call, "item": item, "score": score, "scorer": scorer}


def _build_preview(
    dataset: Dataset, text: str, models: list[Any], dimension: Dimension | None = None
) -> dict[str, Any]:
    item = _get_item(dataset)
    context: dict[str, Any] = {"preview_item": item, "turns": [], "preview_problem": "", "summary": None}
    try:
        address = item.image.url if item.image else None
        sent = first_study.render_question(text, item, dimension, image_address=address)
        context["turns"] = build_turns(sent, item)
    except PromptError as problem:
        context["preview_problem"] = str(problem)
    else:
        if models:
            context["summary"] = first_study.estimate_run(dataset, models, text, dimension)
    return context


# The page -------------------------------------------------------------------------------------------------------------


def _render(
    request: HttpRequest,
    *,
    connect: ConnectForm | None = None,
    data: DataForm | None = None,
    question: QuestionForm | None = None,
    call: Preflight | None = None,
    job: BackgroundJob | None = None,
    **more: Any,
) -> HttpResponse:
    """Show the page. job: the upload's job as it was when the view decided, because a worker may end it meanwhile."""
    models = list(prefetch_last_preflights(first_study.list_usable_models(request.user)))
    dataset, upload = _get_dataset(request), _find_upload(request)
    job = job or (upload.job if upload else None)
    answered = Experiment.objects.filter(owner=cast(User, request.user), runs__n_done__gt=0)
    context: dict[str, Any] = {
        "connect": connect or ConnectForm(),
        "data": data or DataForm(),
        "models": models,
        "dataset": dataset,
        "upload": upload,
        "job": job,
        "outcome": upload.outcome if upload and job and job.state == "done" else None,
        "orphaned": bool(job and job.is_lost),
        "has_choices": False,
        "has_norms": False,
        "has_targets": False,
        "table": upload.table if upload else None,
        "may_connect": is_operator(request.user),
        "may_approve": bool(dataset and first_study.may_approve(dataset, request.user)),
        "first_experiment": answered.first(),
        "is_answered": dataset is not None and not upload and answered.filter(dataset=dataset).exists(),
        "pilot": first_study.PILOT,
    }
    if context["outcome"]:
        first_items = context["outcome"].first_items
        context["has_choices"] = any(item["choices"] for item in first_items)
        context["has_targets"] = any(item["target"] for item in first_items)
        context["has_norms"] = any(item["norms"] for item in first_items)
    if dataset and models and not upload:
        guess = first_study.guess_question(dataset)
        ticked = [model.pk for model in models[:MAX_TICKED]] if len(models) <= MAX_TICKED else [models[0].pk]
        rows = first_study.list_usable_models(request.user)
        form = question or QuestionForm(initial={"models": ticked}, rows=rows, guess=guess)
        dimension = form.cleaned_data.get("dimension") if form.is_bound else guess.build_dimension()
        item = _get_item(dataset)
        text = str(form["prompt"].value() or "")
        keys = {str(key) for key in form["models"].value() or ()}
        context |= {
            "question": form,
            "guess": guess,
            "first_item": item,
            "variables": first_study.list_variables(item),
            **_build_preview(dataset, text, [model for model in models if str(model.pk) in keys], dimension),
            **(_build_try(request, call, _name_reading(form)) if call else {}),
        }
    return render(request, "grading_app/start.html", context | more)


ACTIONS: dict[str, Callable[[HttpRequest], HttpResponse]] = {
    "fetch": _fetch_models,
    "allow": _fetch_models,
    "models": _add_chosen_models,
    "read": _read_data,
    "sample": _read_sample,
    "sheet": _read_sheet,
    "import": _import,
    "again": _retry_upload,
    "discard": _discard,
    "try": _try,
    "run": _run,
}
FOR_OPERATORS = frozenset({_fetch_models, _add_chosen_models})
