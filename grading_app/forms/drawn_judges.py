"""The form of judges with randomly drawn models: the rubric, the draw, and its result."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse

from datasets_app.models.datasets import slug_validator
from evalsite.lib.web.form_fields import add_create_link, offer_rows
from grading_app.forms.rating import rubric_label
from grading_app.judging.judge_draw import draw_graders
from grading_app.judging.usable_versions import select_usable
from grading_app.models import Grader, Rubric
from runs_app.experiment_files.model_draw import Draw
from runs_app.forms.draws import DrawForm, sign_draw
from runs_app.models import Experiment, LanguageModel
from runs_app.planning.drawn_models import DrawLines
from runs_app.planning.work import PlanError


class DrawnJudgesForm(forms.Form):
    """A name and a rubric for the judges, with the fields of the draw (`draw_form`)."""

    name = forms.CharField(
        max_length=40,
        validators=[slug_validator],
        help_text="The prefix of the judges' names: panel gives panel-large for the model large",
    )
    rubric = forms.ModelChoiceField(Rubric.objects.none(), empty_label=None, help_text="Used by all judges")
    confirmed = forms.BooleanField(label="I have seen what this can cost", required=False)

    def __init__(self, data: Any, *, experiment: Experiment, user: Any) -> None:
        super().__init__(data)
        self.experiment = experiment
        rubrics = select_usable(Rubric, experiment).exclude(kind=Rubric.Kind.WRITER)
        offer_rows(self, "rubric", rubrics.order_by("name", "-version"), label=rubric_label)
        new_rubric = reverse("library_new", args=["rubrics"])
        add_create_link(self, "rubric", user, "grading_app.add_rubric", new_rubric, "Create another rubric")
        self.models = LanguageModel.objects.visible_to(user)
        self.draw_form = self._make_draw_form(data)

    def _make_draw_form(self, data: Any) -> DrawForm:
        draw_form = DrawForm(data, stored={})
        draw_form.fields["draw"].required = True
        draw_form.fields["draw"].error_messages["required"] = "Enter the number of models."
        return draw_form

    def redraw(self) -> None:
        """Make a new draw. Errors are shown at their fields."""
        draw = self.draw_form.draw_models(self.models)
        if draw is not None:
            submitted: Any = self.data
            data = submitted.copy()
            data["draw-pinned"] = sign_draw(draw.content)
            self.data, self.draw_form = data, self._make_draw_form(data)

    @property
    def draw(self) -> Draw | None:
        return self.draw_form.pinned_draw

    @property
    def lines(self) -> DrawLines | None:
        return self.draw_form.compare_lines(self.draw.drawn if self.draw else ())

    def draw_graders(self) -> list[Grader]:
        """Return the judges of the current draw if the form is valid. Problems become form errors."""
        if self.draw is None or not self.is_valid():
            return []
        try:
            return draw_graders(self.draw, name=self.cleaned_data["name"], rubric=self.cleaned_data["rubric"])
        except PlanError as error:
            self.add_error(None, error.problems)
            return []
