"""The form that grades stored answers by rules."""

from __future__ import annotations

from typing import Any

from django import forms

from evalsite.lib.web.form_fields import get_choice_field
from runs_app.forms.fields import RulesField
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
