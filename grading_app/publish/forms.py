"""The forms of files that leave the site: printed figures, snapshots, participant-style data and reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils import timezone

from evalsite.lib.web.form_fields import NamedChoiceField, NumberField, list_choices_in_errors
from grading_app.models import ReportChoices, ShareLink
from grading_app.publish.export.wide_tables import (
    LARGEST_SEED,
    MAX_ITEMS,
    PARTICIPANT_ITEMS,
    PARTICIPANT_SEED,
    WideTableError,
    build_participants,
)
from grading_app.publish.figures.figure_set import FigureSource
from grading_app.publish.figures.print_style import MM_PER_INCH, PALETTES, PrintStyle
from grading_app.publish.report.build import END
from grading_app.publish.report.document import LONGEST
from grading_app.results.figure import Figure
from grading_app.results.parametric.surface_figures import PREFIX
from grading_app.results.scores import match_measure
from runs_app.models import Experiment

MAX_PIXELS = 40_000_000
DEFAULTS = PrintStyle()
MAX_HIDDEN_FIELDS = 40
"""The number of hidden fields for the choices of the explorer and the wave."""
LINK_DAYS = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year"))
DEFAULT_LINK_DAYS = 30


class FigureForm(forms.Form):
    """The choices of the figures page, sent by GET. An empty field takes its default."""

    measure = NamedChoiceField(label="Measure", required=False)
    only = forms.CharField(label="Figure", required=False, max_length=200, widget=forms.Select)
    second = NamedChoiceField(label="Second dimension", required=False)
    images = forms.BooleanField(label="Images as marks", required=False)
    mm = NumberField(label="Width (mm)", required=False, min_value=40, max_value=400)
    height = NumberField(label="Height (mm)", required=False, min_value=20, max_value=400)
    font = NumberField(label="Font size (pt)", required=False, min_value=5, max_value=20)
    dpi = forms.IntegerField(label="PNG resolution (dpi)", required=False, min_value=72, max_value=1200)
    palette = forms.ChoiceField(
        label="Colours", required=False, choices=[(name, palette.label) for name, palette in PALETTES.items()]
    )
    title = forms.CharField(label="Title in the picture", required=False, max_length=120)
    x = forms.CharField(label="Label of the x axis", required=False, max_length=80)
    y = forms.CharField(label="Label of the y axis", required=False, max_length=80)

    def __init__(self, data: QueryDict, source: FigureSource) -> None:
        super().__init__(data)
        measures: Any = self.fields["measure"]
        measures.choices = [(measure.key, measure.label) for measure in source.measures]
        measures.find_key = lambda name: match_measure(source.measures, name).key
        second: Any = self.fields["second"]
        ratings = [measure for measure in source.measures if measure.is_rating]
        second.choices = [("", "Next dimension"), *((measure.key, measure.label) for measure in ratings)]
        second.find_key = lambda name: match_measure(ratings, name).key
        if len(ratings) < 2:
            del self.fields["second"]
        if not ratings:
            del self.fields["images"]
        hidden_names = [name for name in data if name == "wave" or name.startswith(PREFIX)]
        for name in hidden_names[:MAX_HIDDEN_FIELDS]:
            self.fields[name] = forms.CharField(required=False, max_length=200, widget=forms.HiddenInput())
        list_choices_in_errors(self)
        examples = {"mm": DEFAULTS.width_mm, "font": DEFAULTS.font_pt, "dpi": DEFAULTS.dpi, "height": "as drawn"}
        for name, example in examples.items():
            self.fields[name].widget.attrs["placeholder"] = f"{example:g}" if not isinstance(example, str) else example

    def offer_figures(self, figures: Sequence[Figure], *, are_all: bool) -> None:
        """Let the reader choose one of these figures, so that a title and labels belong to it alone.

        are_all: False while a worker computes more figures; then the chosen one may be among them.
        """
        widget: Any = self.fields["only"].widget
        widget.choices = [("", "All figures"), *((one.name, one.title) for one in figures)]
        if are_all and self.is_valid() and self.cleaned_data["only"] not in {"", *(one.name for one in figures)}:
            self.add_error("only", "There is no such figure of this measure. Choose another one.")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        width, dpi = cleaned.get("mm") or DEFAULTS.width_mm, cleaned.get("dpi") or DEFAULTS.dpi
        height = cleaned.get("height") or width
        if width * height * (dpi / MM_PER_INCH) ** 2 > MAX_PIXELS:
            self.add_error("dpi", "This picture would have more than 40 million pixels. Lower its resolution or size.")
        return cleaned

    @property
    def style(self) -> PrintStyle:
        """The print style of a valid form."""
        data = self.cleaned_data
        return PrintStyle(
            width_mm=data["mm"] or DEFAULTS.width_mm,
            height_mm=data["height"],
            font_pt=data["font"] or DEFAULTS.font_pt,
            palette=data["palette"] or DEFAULTS.palette,
            dpi=data["dpi"] or DEFAULTS.dpi,
            title=data["title"],
            x_label=data["x"],
            y_label=data["y"],
        )


class SnapshotForm(forms.Form):
    label = forms.CharField(max_length=80, required=False, help_text="For example: submission")
    reason = forms.CharField(max_length=500, label="Reason", help_text="The purpose; stored in the study card")


class ParticipantsForm(forms.Form):
    """The options of participant-style data, sent by GET to the address of a file."""

    n_items = forms.IntegerField(
        label="Items",
        min_value=1,
        max_value=MAX_ITEMS,
        initial=PARTICIPANT_ITEMS,
        help_text="Drawn in proportion to the categories",
    )
    seed = forms.IntegerField(
        min_value=0, max_value=LARGEST_SEED, initial=PARTICIPANT_SEED, help_text="The same seed draws the same items"
    )

    def __init__(self, data: Any, experiment: Experiment) -> None:
        """data: the parameters of an address. Without these options, the form has its defaults."""
        super().__init__(data if any(name in data for name in self.base_fields) else None)
        self.experiment = experiment

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                build_participants(self.experiment, {name: str(value) for name, value in cleaned.items()})
            except WideTableError as error:
                self.add_error("n_items", f"{error.reason[:1].upper()}{error.reason[1:]}.")
        return cleaned


class ReportForm(forms.Form):
    """A checkbox for each section, and a text before each section and at the end."""

    def __init__(self, *args: Any, choices: ReportChoices, sections: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.choices, self.sections = choices, sections
        for name, title in [*sections, (END, "the end")]:
            if name != END:
                self.fields[f"with_{name}"] = forms.BooleanField(
                    label=title, required=False, initial=name not in choices.left_out
                )
            self.fields[f"text_{name}"] = forms.CharField(
                label=f"Text before “{title}”" if name != END else "Text at the end",
                required=False,
                max_length=LONGEST,
                initial=choices.texts.get(name, ""),
                widget=forms.Textarea(attrs={"rows": 3}),
            )
            # A browser would cut a longer text silently. The form refuses it instead.
            del self.fields[f"text_{name}"].widget.attrs["maxlength"]

    @property
    def rows(self) -> list[tuple[Any, Any]]:
        """The fields by section: the checkbox (None for the end) and the text."""
        pairs = [(self[f"with_{name}"], self[f"text_{name}"]) for name, _ in self.sections]
        return [*pairs, (None, self[f"text_{END}"])]

    def save(self, *, by: Any) -> bool:
        data = self.cleaned_data
        left_out = [name for name, _ in self.sections if not data[f"with_{name}"]]
        names = [*(name for name, _ in self.sections), END]
        texts = {name: data[f"text_{name}"] for name in names if data[f"text_{name}"].strip()}
        return self.choices.change(left_out=left_out, texts=texts, by=by)


class ShareLinkForm(forms.Form):
    scope = forms.ChoiceField(label="Shows", choices=ShareLink.Scope.choices)
    days = forms.TypedChoiceField(label="Valid for", choices=LINK_DAYS, coerce=int, initial=DEFAULT_LINK_DAYS)
    label = forms.CharField(
        label="For", max_length=80, required=False, help_text="For example reviewers. Only you and co-authors see it"
    )
    shows_costs = forms.BooleanField(
        label="Show costs",
        required=False,
        help_text="If off, readers see no budget and no section, column or figure of costs",
    )

    @property
    def expires_at(self) -> datetime:
        return timezone.now() + timedelta(days=self.cleaned_data["days"])
