"""The page that designs a space of parametric tasks, previews it, and has a worker build the dataset."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.files.base import ContentFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from datasets_app import pending_uploads
from datasets_app.forms import LARGEST_SEED, SlugField
from datasets_app.generators.generator import Generator
from datasets_app.generators.registry import get_generator, load_generators
from datasets_app.parametric.dataset_builder import compare_with_newest
from datasets_app.parametric.items import describe_gaps
from datasets_app.parametric.manifolds import DENSITIES, MAX_DEGREE
from datasets_app.parametric.spaces import SEED, Space, resolve_space
from datasets_app.parametric.spec import SpaceError, SpaceSpec, read_space
from evalsite.lib.permissions import members_only
from evalsite.lib.web.form_fields import fetch_choices
from evalsite.lib.web.htmx import wants_part
from runs_app.forms.parametric_tasks import TaskValuesForm, describe_param, find_task, replace_task
from runs_app.models import LanguageModel
from runs_app.planning import parametric_spaces
from runs_app.planning.shipped_designs import PROMPTS

FILE_NAME = "space.yaml"
MAX_SURVEYED_POINTS = 200  # The preview draws some cases of each, while the user types.
TASK_BUTTONS = {"add", "set", "write", "replace"}  # Buttons that change the text or show the parameters of a task.
MAX_SIZE = 1_000_000
HEAD = "name: my-space\nprecision:\n  low: {count: 32}\n  high: {count: 128, targetci: 0.05, maximum: 1024}\ntasks:\n"
SAMPLE = (
    HEAD
    + """  - name: arithmetic
    mode: manifold
    manifold:
      length: {range: [8, 16, 24, 32, 40, 48], window: {skip: degree, body: 4}, "resample:corner": {first: 1, last: 1}}
      max_depth: {range: [0, 1, 2, 3, 4, 5], window: {skip: degree, body: 3}, "resample:corner": {first: 1, last: 1}}
  - name: shuffle
    params:
      length: [3, 5, 7]
      max_depth: {from: 4, to: 16, step: 4}
"""
)


class SpaceForm(forms.Form):
    """The form of a space. `spec` and `space` are set if the file and the choices are valid."""

    slug = SlugField(required=False, help_text="Name of the dataset. An existing name gets a new version")
    title = forms.CharField(max_length=200, required=False)
    file = forms.FileField(
        required=False,
        label="Upload a file",
        help_text="YAML or JSON. It replaces the text",
        widget=forms.FileInput(attrs={"accept": ".yaml,.yml,.json"}),
    )
    text = forms.CharField(
        label="Space",
        max_length=MAX_SIZE,
        strip=False,
        required=False,
        widget=forms.Textarea(attrs={"rows": 22, "class": "mono", "spellcheck": "false"}),
        help_text="A parameter is a value, a list, {from, to, step} or a manifold",
    )
    task = forms.ChoiceField(
        required=False, label="Task", help_text="Set its parameters in a form, or append it with its defaults"
    )
    degree = forms.IntegerField(
        min_value=0, max_value=MAX_DEGREE, required=False, help_text="For tasks without a degree"
    )
    density = forms.ChoiceField(
        choices=[(name, name) for name in DENSITIES], required=False, help_text="For tasks without a density"
    )
    precision = forms.CharField(max_length=80, required=False, help_text="Name in the file. Empty: the first")
    seed = forms.IntegerField(min_value=0, max_value=LARGEST_SEED, required=False)
    prompt = forms.ChoiceField(choices=[(name, name) for name in PROMPTS], required=False)
    answer_tokens = forms.IntegerField(
        min_value=1, max_value=1_000_000, required=False, label="Tokens per answer", help_text="Your assumption"
    )
    models = forms.ModelMultipleChoiceField(
        LanguageModel.objects.none(), required=False, widget=forms.CheckboxSelectMultiple, label="Models"
    )
    point = forms.IntegerField(
        min_value=1, required=False, label="Point", help_text="Number of the point whose cases are shown"
    )
    x = forms.CharField(max_length=80, required=False, label="Across", help_text="Parameter of the map")
    y = forms.CharField(max_length=80, required=False, label="Down", help_text="Parameter of the map")

    DEFAULTS: dict[str, Any] = {
        "text": SAMPLE,
        "degree": 0,
        "density": "normal",
        "seed": SEED,
        "prompt": "zeroshot",
        "answer_tokens": 500,
        "point": 1,
    }

    def __init__(self, data: Any = None, files: Any = None, *, initial: Any = None) -> None:
        super().__init__(data, files, initial=self.DEFAULTS | (initial or {}))
        tasks: Any = self.fields["task"]
        titles = ((name, generator.title) for name, generator in load_generators().items())
        tasks.choices = [("", "Choose a task"), *titles]
        models: Any = self.fields["models"]
        models.queryset = LanguageModel.objects.filter(is_active=True, endpoint__is_active=True).select_related(
            "endpoint"
        )
        for name in (*self.DEFAULTS, "slug", "task", "precision", "x", "y"):
            field: Any = self.fields[name]
            field.has_default = True  # Its label does not call it optional.
        self.spec: SpaceSpec | None = None
        self.space: Space | None = None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        cleaned |= {
            name: value for name, value in self.DEFAULTS.items() if name != "text" and cleaned.get(name) in (None, "")
        }
        if cleaned.get("file"):
            cleaned["text"] = self._read_file(cleaned["file"])
        if self.errors:
            return cleaned
        cleaned["text"] = cleaned["text"].replace("\r\n", "\n")  # Browsers submit CRLF.
        try:
            self.spec = read_space(cleaned["text"])
            self.space = resolve_space(
                self.spec,
                precision=cleaned["precision"] or None,
                degree=cleaned["degree"],
                density=cleaned["density"],
                seed=cleaned["seed"],
            )
        except SpaceError as error:
            for problem in error.problems:
                self.add_error("precision" if problem.startswith("precision: the file has") else "text", problem)
        return cleaned

    def _read_file(self, file: Any) -> str:
        try:
            if file.size > MAX_SIZE:
                self.add_error("file", f"This file has more than {MAX_SIZE:,} bytes. Choose a smaller file.")
                return ""
            return str(file.read().decode("utf-8-sig"))
        except UnicodeDecodeError:
            self.add_error("file", "This file is not UTF-8 text. Save it as UTF-8 and try again.")
            return ""

    def build_options(self) -> dict[str, str]:
        """Return the choices that a worker needs to build the space."""
        return {name: str(self.cleaned_data[name]) for name in ("degree", "density", "precision", "seed")}


def append_task(text: str, name: str) -> str:
    """Return the text of a space with another task, whose parameters have their defaults and their help."""
    return f"{start_space(text)}\n{describe_task(get_generator(name))}"


def start_space(text: str) -> str:
    """Return the text to which a task is appended: without a trailing newline, and with a head if it was empty."""
    return text.replace("\r\n", "\n").rstrip() or HEAD.rstrip()


def describe_task(generator: Generator) -> str:
    """Return the task as YAML. The comment after each parameter has its help, its bounds and its difficulty."""
    lines = [f"  - name: {generator.name}", "    params:"]
    for info in generator.describe_params():
        default = str(info.default).lower() if isinstance(info.default, bool) else info.default
        lines.append(f"      {info.name}: {default}  # {describe_param(info, default=False)}")
    return "\n".join(lines) + "\n"


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
