"""Forms for datasets: files, mappings, draws and reasons. No form has a status field."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django import forms
from django.forms.boundfield import BoundField
from django.utils.text import capfirst, slugify

from datasets_app.importing import FIELDS
from datasets_app.importing.column_map import SHEET
from datasets_app.models import Dataset
from datasets_app.models.datasets import slug_validator
from datasets_app.pending_uploads import MAX_BYTES, MIB, PendingUpload
from datasets_app.sampling import Strategy

TABLES = ".csv,.tsv,.txt,.xlsx,.xlsm,.ods,.jsonl,.ndjson,.json,.parquet"
ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
LARGEST_SEED = 2**31 - 1
EXPRESSION_CHARS = 2000
SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}\Z")
SLUG_CHARS = 80
REPOSITORY = r"\A(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*\Z"


def draw_seed() -> int:
    """Return a random seed that is short enough to read out."""
    return secrets.randbelow(1_000_000)


class SlugField(forms.CharField):
    """The name of a dataset. "My first set" becomes `my-first-set`; the page shows the result during typing."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.TextInput(attrs={"data-slug": "", "autocomplete": "off", "spellcheck": "false"})
        super().__init__(max_length=200, validators=[slug_validator], widget=widget, **{"label": "Name", **kwargs})

    def to_python(self, value: Any) -> str:
        text = super().to_python(value) or ""
        return text if not text or SLUG.match(text) else slugify(text)[:SLUG_CHARS].strip("-_")

    def clean(self, value: Any) -> Any:
        if value and str(value).strip() and not self.to_python(value):
            raise forms.ValidationError("Use at least one letter (a to z) or digit.")
        return super().clean(value)


class UploadField(forms.FileField):
    """An upload field with a limit on the size of the file."""

    def __init__(self, part: str, accept: str, **kwargs: Any) -> None:
        self.most_bytes = MAX_BYTES[part]
        super().__init__(widget=forms.FileInput(attrs={"accept": accept}), **kwargs)

    def clean(self, data: Any, initial: Any = None) -> Any:
        file = super().clean(data, initial)
        if file and file.size > self.most_bytes:
            raise forms.ValidationError(f"This file has more than {self.most_bytes // MIB} MiB.")
        return file


HUB_FIELDS = ("repository", "configuration", "split", "revision", "data_file")
PART_FIELDS = {"items": "file", "images": "images", "norms": "norms"}


class DescriptionForm(forms.Form):
    """The name and description of a new dataset."""

    slug = SlugField(help_text="Lower-case letters, digits, - and _. An existing name gets a new version")
    title = forms.CharField(max_length=200, required=False)
    source = forms.CharField(
        required=False,
        max_length=5000,
        help_text="A citation or web address",
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    licence = forms.CharField(max_length=200, required=False, help_text="The terms of use, such as CC BY 4.0")

    def read_description(self) -> dict[str, str]:
        """Return title, source and licence. If there is no title, use a name that was not a valid slug as the title."""
        about = {name: self.cleaned_data.get(name, "") for name in ("title", "source", "licence")}
        entered_name = " ".join(self.data.get("slug", "").split())
        if not about["title"] and entered_name != self.cleaned_data.get("slug"):
            about["title"] = entered_name[:200]
        return about


class UploadForm(DescriptionForm):
    """The first step of an import: the files and the name of the dataset. The second step maps the columns."""

    file = UploadField(
        "items",
        f"{TABLES},.zip",
        label="Items",
        help_text="Excel, OpenDocument, CSV, JSON lines, JSON, Parquet, or a zip of images with or without a table",
    )
    images = UploadField(
        "images", ".zip", required=False, label="Images", help_text="A zip file with the images named in the table"
    )
    norms = UploadField(
        "norms",
        TABLES,
        required=False,
        label="Human norms",
        help_text="A table with item keys and columns such as Valence_mean, Valence_SD and Valence_N",
    )
    field_order = ("file", "images", "norms", "slug", "title", "source", "licence")

    def __init__(self, *args: Any, previous: PendingUpload | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.previous: PendingUpload | None = None
        if previous:
            self.reuse_files(previous)

    def reuse_files(self, previous: PendingUpload) -> None:
        """Reuse the files of an earlier upload, so that the person need not choose them again."""
        self.previous = previous
        for part, name in PART_FIELDS.items():
            if part in previous.names:
                self.fields[name].required = False

    def clean_images(self) -> Any:
        images = self.cleaned_data["images"]
        if images and images.read(4) not in ZIP_STARTS:
            raise forms.ValidationError("This file is not a zip archive. Choose a .zip file.")
        return images

    def list_files(self) -> dict[str, Any]:
        """Return the valid files that were sent, by part."""
        return {part: self.cleaned_data[name] for part, name in PART_FIELDS.items() if self.cleaned_data.get(name)}


class HubForm(DescriptionForm):
    """The first step of an import from the Hugging Face hub. The address of the hub is a setting of the site."""

    repository = forms.RegexField(
        REPOSITORY,
        max_length=200,
        label="Dataset",
        help_text="OWNER/NAME, as in the address of its page",
        error_messages={"invalid": "Write OWNER/NAME, such as openai/gsm8k, without the address of the hub."},
    )
    configuration = forms.CharField(required=False, max_length=100, help_text="Empty: the default one")
    split = forms.CharField(required=False, max_length=100, help_text="Such as train or test. Empty: all files")
    revision = forms.CharField(
        max_length=100,
        initial="main",
        help_text="A branch, a tag or a commit. The dataset records the commit, so the same rows can be imported again",
    )
    data_file = forms.CharField(
        required=False, max_length=500, help_text="The path of a file in the dataset, if its splits are not found"
    )
    field_order = (*HUB_FIELDS, "slug", "title", "source", "licence")

    def read_request(self) -> dict[str, str]:
        """Return the arguments of the download."""
        return {name: self.cleaned_data[name] for name in HUB_FIELDS}


class FieldLabel(NamedTuple):
    label: str
    help: str


FIELD_LABELS = {
    "key": FieldLabel("Key", "Identifies the item. Without a column, rows are numbered"),
    "input": FieldLabel("Input", "The text for the model"),
    "image": FieldLabel("Image", "The file name in the zip, or the image data"),
    "target": FieldLabel("Target", "The correct answer"),
    "choices": FieldLabel("Choices", "A list, or several columns: a+b+c"),
    "grading_scheme": FieldLabel("Grading scheme", "How a judge should grade the answer"),
    "category": FieldLabel("Category", "The stratum for stratified samples"),
    "metadata": FieldLabel("Metadata", "Stored with the item; for several columns: a+b"),
    "dims": FieldLabel("Norms in this table", "Dimensions with a column of means: valence+arousal"),
}
LEFT_OUT, THE_REST, NONE = "", "*", "-"


class MappingRow(NamedTuple):
    """A row of the mapping form: a column to choose, and an expression that overrides it."""

    meaning: FieldLabel
    column: BoundField | None
    expression: BoundField


class MappingForm(forms.Form):
    """The second step of an import: a column or an expression for each field of an item.

    Expressions have the syntax of `manage.py dataset import`.
    """

    def __init__(
        self, *args: Any, columns: list[str], guess: Mapping[str, str], sheets: Sequence[str] = (), **kwargs: Any
    ) -> None:
        """sheets: the sheets of a spreadsheet; with two or more, the form offers them."""
        super().__init__(*args, **kwargs)
        self.columns = columns
        if len(sheets) > 1:
            choices = [(name, name) for name in sheets]
            self.fields[SHEET] = forms.ChoiceField(choices=choices, initial=guess.get(SHEET, sheets[0]), label="Sheet")
        for field in FIELDS:
            guessed, label = guess.get(field, ""), FIELD_LABELS[field].label
            is_column = guessed in columns
            if field != "dims":
                first = [(THE_REST, "All other columns"), (NONE, "None")] if field == "metadata" else [(LEFT_OUT, "–")]
                self.fields[f"column_{field}"] = forms.ChoiceField(
                    # A column may be named "*" or "-", so the choices are column numbers.
                    choices=[*first, *((str(at), name) for at, name in enumerate(columns))],
                    required=False,
                    label=f"{label}: column",
                    initial=str(columns.index(guessed)) if is_column else first[0][0],
                )
            self.fields[f"expression_{field}"] = forms.CharField(
                required=False,
                strip=False,
                max_length=EXPRESSION_CHARS,
                label=f"{label}: expression" if field != "dims" else label,
                initial="" if is_column else guessed,
                widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false", "autocomplete": "off"}),
            )

    def rows(self) -> Iterator[MappingRow]:
        for field, meaning in FIELD_LABELS.items():
            column = self[f"column_{field}"] if field != "dims" else None
            yield MappingRow(meaning, column, self[f"expression_{field}"])

    @property
    def mapping(self) -> dict[str, str]:
        """Return the mapping for `read_items`. It has every field, with "" for a field that is left out.

        `metadata` is missing from the mapping if it means all other columns.
        """
        expressions: dict[str, str] = {}
        for field in FIELDS:
            expression: str = self.cleaned_data[f"expression_{field}"]
            column: str = self.cleaned_data.get(f"column_{field}", "")
            if expression.strip():
                expressions[field] = expression
            elif column.isdecimal():
                expressions[field] = self.columns[int(column)]
            else:
                expressions[field] = THE_REST if column == THE_REST else ""
        if expressions["metadata"] == THE_REST:
            del expressions["metadata"]
        if SHEET in self.fields:
            expressions[SHEET] = self.cleaned_data[SHEET]
        return expressions

    def add_mapping_errors(self, problems: Mapping[str, str]) -> None:
        """Add each problem as an error to the field of its expression, or of its column if no expression was typed."""
        for field, message in problems.items():
            is_typed = self.data.get(f"expression_{field}", "").strip()
            name = f"expression_{field}" if is_typed or field == "dims" else f"column_{field}"
            self.add_error(name if name in self.fields else None, capfirst(message))


class AboutForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Dataset
        fields = ["title", "description", "source", "licence"]
        help_texts = {"source": "A citation or web address"}
        widgets = {"description": forms.Textarea(attrs={"rows": 4}), "source": forms.Textarea(attrs={"rows": 2})}

    reason = forms.CharField(max_length=500, required=False, help_text="Why you change it, for the history")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Remove the reason field for a draft. Other datasets need a reason, because people rely on them."""
        super().__init__(*args, **kwargs)
        if self.instance.is_draft:
            del self.fields["reason"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        changed = set(self.changed_data) - {"reason"}
        if (
            "reason" in self.fields
            and changed
            and not cleaned.get("reason", "").strip()
            and "reason" not in self.errors
        ):
            self.add_error(
                "reason", f"Say why: this dataset is {self.instance.status}, and the history keeps the reason."
            )
        return cleaned


STRATEGY_WORDS: dict[Strategy, str] = {
    "stratified": "Stratified: each category in proportion to its size, at least one item each",
    "uniform": "Uniform: the same number per category; the total must be a multiple of the categories",
    "random": "Random: any items, regardless of category",
    "all": "All: every active item; leave the number empty",
}


class SampleForm(forms.Form):
    """A form that draws a sample into a new draft."""

    slug = SlugField(label="Name of the new draft", help_text="An existing name gets a new version")
    strategy = forms.ChoiceField(choices=list(STRATEGY_WORDS.items()), widget=forms.RadioSelect, initial="stratified")
    n = forms.IntegerField(min_value=1, label="Items")
    seed = forms.IntegerField(min_value=0, max_value=LARGEST_SEED, help_text="The same seed draws the same items")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["n"].required = self.data.get("strategy") != "all"

    def add_draw_error(self, message: str) -> None:
        """Add the error of a failed draw to the field that it concerns: the name or the number."""
        field, _, text = message.partition(": ")
        self.add_error("slug" if field == "name" else "n", text if field == "name" else message)


class NormsForm(forms.Form):
    norms = UploadField(
        "norms",
        TABLES,
        label="Table of norms",
        help_text="Item keys and columns such as Valence_mean, Valence_SD and Valence_N; "
        "or the columns dimension, mean, sd, n",
    )


class DraftActionForm(forms.Form):
    """The reason for an action, the seed for a new draw, and the keys of items to add."""

    reason = forms.CharField(max_length=500, required=False, label="Reason")
    seed = forms.IntegerField(min_value=0, max_value=LARGEST_SEED, required=False, label="Seed")
    keys = forms.CharField(max_length=200_000, required=False, label="Keys")

    def clean_keys(self) -> list[str]:
        """Return the keys, one per line, because a key may contain spaces and commas."""
        lines = (line.strip() for line in self.cleaned_data["keys"].splitlines())
        return list(dict.fromkeys(line for line in lines if line))
