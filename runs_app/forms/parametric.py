"""The form of a space of parametric tasks: the file, the choices that resolve it, and those of the preview."""

from __future__ import annotations

from typing import Any

from django import forms

from datasets_app.forms import LARGEST_SEED, SlugField
from datasets_app.generators.generator import Generator
from datasets_app.generators.registry import get_generator, load_generators
from datasets_app.parametric.manifolds import DENSITIES, MAX_DEGREE
from datasets_app.parametric.spaces import SEED, Space, resolve_space
from datasets_app.parametric.spec import SpaceError, SpaceSpec, read_space
from runs_app.forms.parametric_tasks import describe_param
from runs_app.models import LanguageModel
from runs_app.planning.shipped_designs import PROMPTS

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
