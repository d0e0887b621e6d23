"""The page that designs a space of parametric tasks, previews it, and has a worker build the dataset."""

from __future__ import annotations

from typing import Any

from django.core.files.base import ContentFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from datasets_app import pending_uploads
from datasets_app.generators.registry import load_generators
from datasets_app.parametric.dataset_builder import compare_with_newest
from datasets_app.parametric.items import describe_gaps
from datasets_app.parametric.manifolds import DENSITIES
from evalsite.lib.permissions import members_only
from evalsite.lib.web.form_fields import fetch_choices
from evalsite.lib.web.htmx import wants_part
from runs_app.forms.parametric import SpaceForm, append_task, start_space
from runs_app.forms.parametric_tasks import TaskValuesForm, find_task, replace_task
from runs_app.planning import parametric_spaces

FILE_NAME = "space.yaml"
MAX_SURVEYED_POINTS = 200  # The preview draws some cases of each, while the user types.
TASK_BUTTONS = {"add", "set", "write", "replace"}  # Buttons that change the text or show the parameters of a task.


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def parametric_new(request: HttpRequest) -> HttpResponse:
    """Show the form with a preview, add a task to its text, or have a worker build the dataset."""
    form = (
        SpaceForm(request.POST, request.FILES)
        if request.method == "POST"
        else SpaceForm(initial=_load_pending_entries(request))
    )
    # The bound form of the task parameters that the page showed, or None if it showed none.
    generator = load_generators().get(request.POST.get("shown_task", ""))
    replaces = request.POST.get("shown_name", "")
    values = TaskValuesForm(generator, request.POST, replaces=replaces) if generator else None
    if TASK_BUTTONS & set(request.POST):
        form, values = _apply_task_button(request, values)
    elif form.is_bound and form.is_valid() and "build" in request.POST:
        if form.cleaned_data["slug"]:
            data = form.cleaned_data
            upload = pending_uploads.stage_upload(
                request.user,
                {"items": ContentFile(data["text"].encode(), name=FILE_NAME)},
                slug=data["slug"],
                about={"title": data["title"]},
            )
            upload.request_job("parametric", form.build_options())
            return redirect("dataset_import", upload.token)
        form.add_error("slug", "Enter a name for the dataset.")
    elif form.is_bound and form.cleaned_data.get("file") and "text" in form.cleaned_data:
        form.data = {**request.POST.dict(), "text": form.cleaned_data["text"], "models": request.POST.getlist("models")}
    preview = _build_preview(form if form.is_bound else SpaceForm(form.initial))
    context = {"form": form, "values": values, "preview": preview, "densities": DENSITIES}
    if wants_part(request):
        return render(request, "runs_app/partials/space_preview.html", context)
    fetch_choices(form)
    return render(request, "runs_app/parametric_new.html", context)


def _load_pending_entries(request: HttpRequest) -> dict[str, Any]:
    """Return the entries of a space that a worker failed to build, so that the user can correct them."""
    upload = pending_uploads.find_upload(request.user.pk, request.GET.get("upload", ""))
    job = upload.job if upload else None
    if upload is None or job is None or job.kind != "parametric" or not upload.files["items"].path.is_file():
        return {}
    text = upload.files["items"].path.read_text(encoding="utf-8")
    return {**job.parameters["mapping"], **upload.about, "slug": upload.slug, "text": text}


def _apply_task_button(request: HttpRequest, values: TaskValuesForm | None) -> tuple[SpaceForm, TaskValuesForm | None]:
    """Apply a button that adds, shows or replaces a task. Return the unbound form and the form of task parameters.

    "add" appends the task with its defaults. "set" shows its parameters, and "write" appends it with their values.
    "replace" overwrites the task that "set" found in the text.
    """
    entered: dict[str, Any] = {
        name: request.POST.get(name, "") for name in SpaceForm.base_fields if name not in ("models", "file")
    }
    entered["models"] = request.POST.getlist("models")
    generator = load_generators().get(entered["task"])
    if "write" in request.POST and values is not None:
        if values.is_valid():
            entered["text"] = f"{start_space(entered['text'])}\n{values.format_task(entered['text'])}"
            return SpaceForm(initial={**entered, "task": ""}), None
    elif "replace" in request.POST and values is not None:
        if values.is_valid():
            if (text := _replace_in_text(entered["text"], values)) is not None:
                return SpaceForm(initial={**entered, "text": text, "task": ""}), None
            message = f"The text does not define {values.replaces} on separate lines. Choose Add task instead."
            values.add_error(None, message)
    elif "set" in request.POST and generator:
        current = find_task(entered["text"].replace("\r\n", "\n"), generator.name)
        values = TaskValuesForm(generator, task=current)
    elif "add" in request.POST and generator:
        entered["text"] = append_task(entered["text"], generator.name)
        entered["task"] = ""
    return SpaceForm(initial=entered), values


def _replace_in_text(text: str, values: TaskValuesForm) -> str | None:
    """Return the text with the changed task; None if the task is gone or shares a line with another one."""
    text = text.replace("\r\n", "\n")
    current = find_task(text, values.generator.name)
    if current is None or current["name"] != values.replaces:
        return None
    return replace_task(text, values.update_task(current))


def _build_preview(form: SpaceForm) -> dict[str, Any]:
    """Return the parts of the preview, or only the problems of a file that cannot be resolved."""
    if not form.is_valid() or form.space is None or form.spec is None:
        return {"problems": [message for messages in form.errors.values() for message in messages]}
    data, space = form.cleaned_data, form.space
    tasks = parametric_spaces.summarise_tasks(space, data["prompt"])
    number = min(data["point"], len(space.points))
    point = space.points[number - 1] if space.points else None
    return {
        "space": space,
        "tasks": tasks,
        "gaps": describe_gaps(space, MAX_SURVEYED_POINTS),
        "by_density": parametric_spaces.count_by_density(
            form.spec, precision=data["precision"] or None, seed=data["seed"]
        ),
        "maps": parametric_spaces.draw_maps(space, data["x"], data["y"]),
        "costs": parametric_spaces.estimate_costs(tasks, data["models"], data["answer_tokens"]),
        "point": point,
        "number": number,
        "cases": parametric_spaces.show_cases(point, space.seed, data["prompt"]) if point else [],
        "extension": compare_with_newest(space, data["slug"]) if data["slug"] else None,
    }
