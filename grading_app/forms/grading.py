"""The forms that grade stored answers: by rules, by judges and panels, and by judges with randomly drawn models."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import Q
from django.urls import reverse

from datasets_app.models.datasets import slug_validator
from evalsite.lib.web.form_fields import add_create_link, get_choice_field, offer_rows
from grading_app.forms.rating import rubric_label
from grading_app.grading.judging.grade_conditions import select_usable, select_usable_graders
from grading_app.grading.judging.graders import draw_graders, get_or_create_default_sampler
from grading_app.models import Grader, Panel, Rubric
from runs_app.experiment_files.model_draw import Draw
from runs_app.experiment_files.specs import JUDGING_SAMPLER
from runs_app.forms.draws import DrawForm, sign_draw
from runs_app.forms.fields import RulesField
from runs_app.models import Experiment, LanguageModel, Sampler, TextSet, Wave
from runs_app.planning.drawn_models import DrawLines
from runs_app.planning.work import PlanError
from runs_app.scorers.scoring_rules import list_scorer_choices


class RuleForm(forms.Form):
    """Rules by name, and rules with a parameter as lines. `chosen_rules` holds both in the format of a design."""

    scorer = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, required=False, label="Scorers")
    rules = RulesField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        get_choice_field(self, "scorer").choices = list_scorer_choices()
        self.fields["rules"].help_text = RulesField.usage()

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if not self.errors and not self.chosen_rules:
            raise forms.ValidationError("Choose at least one scorer.")
        return cleaned

    @property
    def chosen_rules(self) -> list[Any]:
        return [*self.cleaned_data.get("scorer", []), *self.cleaned_data.get("rules", [])]


class GraderForm(forms.ModelForm):  # type: ignore[type-arg]
    """A judge: a model with a rubric. Only usable rows are offered. Without a sampler, the temperature is 0."""

    class Meta:
        model = Grader
        fields = ("name", "language_model", "rubric", "sampler", "text_set", "on_empty", "longest_answer")
        labels = {"language_model": "Model", "text_set": "Item rubrics"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        fields: Any = self.fields
        if "rubric" not in fields:
            return
        rubric_id = self.instance.rubric_id if self.instance.pk else None
        fields["rubric"].queryset = Rubric.objects.filter(Q(status=Rubric.Status.APPROVED) | Q(pk=rubric_id)).exclude(
            kind=Rubric.Kind.WRITER
        )
        fields["language_model"].queryset = fields["language_model"].queryset.filter(is_active=True)
        fields["sampler"].queryset = Sampler.objects.offered()
        fields["text_set"].queryset = TextSet.objects.filter(status=TextSet.Status.APPROVED)
        fields["sampler"].required = False
        fields["sampler"].help_text = f"Empty: {JUDGING_SAMPLER.name}, temperature 0"

    def clean_sampler(self) -> Sampler:
        return self.cleaned_data["sampler"] or get_or_create_default_sampler()


class JudgeForm(forms.Form):
    """A judge for the stored answers of one wave or of all waves."""

    grader = forms.ModelChoiceField(
        Grader.objects.none(),
        to_field_name="name",
        empty_label=None,
        label="Judge",
        help_text="A model with an approved rubric",
    )
    rubric = forms.ModelChoiceField(
        Rubric.objects.none(), required=False, empty_label="Its own", help_text="Use the same judge with another rubric"
    )
    texts = forms.ModelChoiceField(
        TextSet.objects.none(),
        required=False,
        empty_label="Its own",
        label="Item rubrics",
        help_text="The texts for {{item_rubric}}",
    )
    wave = forms.ModelChoiceField(
        Wave.objects.none(), to_field_name="number", required=False, empty_label="All waves", label="Answers of"
    )
    force = forms.BooleanField(
        required=False,
        label="Judge graded answers again",
        help_text="New verdicts replace the earlier ones",
    )

    def __init__(self, data: Any, *, experiment: Experiment, user: Any, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.experiment = experiment
        graders = Grader.objects.visible_to(user).select_related("rubric", "language_model")
        # With another rubric, the judge's own rubric may be archived.
        has_other_rubric = data is not None and data.get("rubric")
        graders = graders.in_use() if has_other_rubric else graders.filter(pk__in=select_usable_graders(experiment))
        fields: Any = self.fields
        fields["grader"].queryset = graders.order_by("name")
        fields["wave"].queryset = experiment.waves.all()
        if experiment.waves.count() < 2:
            del fields["wave"]
        fields["rubric"].queryset = select_usable(Rubric, experiment).exclude(kind=Rubric.Kind.WRITER)
        fields["texts"].queryset = select_usable(TextSet, experiment).filter(dataset=experiment.dataset_id)
        for name in ("rubric", "texts"):
            if not (user.has_perm("grading_app.add_grader") and fields[name].queryset.exists()):
                del fields[name]
        here = reverse("experiment_judge", args=[experiment.slug])
        new_rubric = f"{reverse('library_new', args=['rubrics'])}?next={here}"
        add_create_link(
            self, "grader", user, "grading_app.add_grader", f"{reverse('judge_new')}?next={here}", "New judge"
        )
        add_create_link(self, "rubric", user, "grading_app.add_rubric", new_rubric, "New rubric")
        new_texts = reverse("experiment_write", args=[experiment.slug])
        add_create_link(self, "texts", user, "runs_app.add_textset", new_texts, "Write other item rubrics")

    def make_grader(self) -> Grader:
        """Return the judge with the chosen rubric and texts, from a valid form. A new judge is not saved."""
        graders = Grader.objects.select_related("language_model__endpoint", "rubric", "sampler", "text_set__dataset")
        grader = graders.get(pk=self.cleaned_data["grader"].pk)
        return grader.make_variant(self.cleaned_data.get("rubric"), self.cleaned_data.get("texts"))

    @property
    def waves(self) -> list[Wave]:
        """The chosen wave, or all waves. The form must be valid."""
        wave = self.cleaned_data.get("wave")
        return [wave] if wave else list(self.experiment.waves.all())


class ConfirmedJudgeForm(JudgeForm):
    """The same form with hidden fields, and a confirmation of the cost."""

    confirmed = forms.BooleanField(label="I have seen what this can cost")

    def __init__(self, data: Any, *, needs_confirmation: bool, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        for name in self.fields.keys() - {"confirmed"}:
            self.fields[name].widget = self.fields[name].hidden_widget()
        if not needs_confirmation:
            del self.fields["confirmed"]


class PanelForm(forms.Form):
    panel = forms.ModelChoiceField(Panel.objects.none(), to_field_name="name", empty_label=None)

    def __init__(self, data: Any = None, *, user: Any) -> None:
        super().__init__(data)
        offer_rows(self, "panel", Panel.objects.visible_to(user))
        add_create_link(
            self, "panel", user, "grading_app.add_panel", reverse("admin:grading_app_panel_add"), "Create another panel"
        )


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
        here = reverse("experiment_draw_judges", args=[experiment.slug])
        new_rubric = f"{reverse('library_new', args=['rubrics'])}?next={here}"
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
