"""The author's choices of a report, and the form of a share link."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from grading_app.models import ReportChoices, ShareLink
from grading_app.publish.report.composition import END
from grading_app.publish.report.markdown import LONGEST

DAYS = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year"))
DEFAULT_DAYS = 30


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
    days = forms.TypedChoiceField(label="Valid for", choices=DAYS, coerce=int, initial=DEFAULT_DAYS)
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
