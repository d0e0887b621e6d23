"""The form of judges with randomly drawn models: the rubric, the draw, and its result."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse

from datasets_app.models.datasets import slug_validator
from evalsite.lib.web.choice_fields import add_create_link, offer_rows
from grading_app.forms.rating import rubric_label
from grading_app.judging.judge_draw import draw_graders
from grading_app.models import Grader, Rubric
from runs_app.experiment_files.model_draw import Draw
from runs_app.forms.draws import DrawForm, sign_draw
from runs_app.models import Experiment, LanguageModel
from runs_app.planning.drawn_models import DrawLines
from runs_app.planning.work import PlanError


class DrawnJudgesForm(forms.Form):
    """A name and a rubric for the judges, with the fields of the draw (`drawing`)."""

    name = forms.CharField(
        max_length=40,
        validators=[slug_validator],
        help_text="What the judges are called, before the name of each one's model: panel gives panel-large",
    )
    rubric = forms.ModelChoiceField(Rubric.objects.none(), empty_label=None, help_text="The same for all of them")
    confirmed = forms.BooleanField(label="I have seen what this can cost", required=False)

    def __init__(self, data: Any, *, experiment: Experiment, user: Any) -> None:
        super().__init__(data)
        self.experiment = experiment
        rubrics = Rubric.objects.filter(status=Rubric.Status.APPROVED).exclude(kind=Rubric.Kind.WRITER)
        offer_rows(self, "rubric", rubrics.order_by("name", "-version"), label=rubric_label)
        new_rubric = reverse("admin:grading_app_rubric_add")
        add_create_link(self, "rubric", user, "grading_app.add_rubric", new_rubric, "Write another rubric")
        self.models = LanguageModel.objects.visible_to(user)
        self.drawing = self._drawing(data)

    def _drawing(self, data: Any) -> DrawForm:
        drawing = DrawForm(data, stored={})
        drawing.fields["draw"].required = True
        drawing.fields["draw"].error_messages["required"] = "Enter the number of models."
        return drawing

    def redrawn(self) -> None:
        """Make a new draw. Errors are shown at their fields."""
        made = self.drawing.draw_models(self.models)
        if made is not None:
            sent: Any = self.data
            data = sent.copy()
            data["draw-pinned"] = sign_draw(made.content)
            self.data, self.drawing = data, self._drawing(data)

    @property
    def made(self) -> Draw | None:
        return self.drawing.pinned_draw

    @property
    def lines(self) -> DrawLines | None:
        return self.drawing.lines(self.made.drawn if self.made else ())

    def graders(self) -> list[Grader]:
        """Return the judges of the present draw, if the form is valid. Problems are added to its errors."""
        if self.made is None or not self.is_valid():
            return []
        try:
            return draw_graders(self.made, name=self.cleaned_data["name"], rubric=self.cleaned_data["rubric"])
        except PlanError as problem:
            self.add_error(None, problem.problems)
            return []
