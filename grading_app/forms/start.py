"""The forms of the page Start: a server of models, a dataset, and a question."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile, UploadedFile
from django.utils.text import slugify

from datasets_app.forms import REPOSITORY, TABLES, UploadField
from evalsite.lib.web.form_fields import AmountField, get_choice_field, offer_rows
from runs_app import first_study
from runs_app.forms.definitions import TEMPLATE
from runs_app.llm.keys import MAX_CHARS, PROVIDER_KEYS, find_name_problem, read_key
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.url_allowlist import find_url_problem, read_grantable_host
from runs_app.models import Endpoint, LanguageModel
from runs_app.scorers.scoring_rules import list_scorer_choices

MAX_PASTED = 2_000_000


class ConnectForm(forms.Form):
    """A server of models, and its key: pasted for this site, or the name of a variable of the environment."""

    provider = forms.ChoiceField(
        choices=Endpoint.Provider.choices, initial=Endpoint.Provider.OPENAI, label="Provider or kind of server"
    )
    base_url = forms.CharField(
        max_length=500,
        required=False,
        label="Base URL",
        help_text="It usually ends in /v1. Empty: the provider's own address",
        widget=forms.TextInput(
            attrs={"placeholder": "https://models.example.org/v1", "inputmode": "url", "autocomplete": "off"}
        ),
    )
    key = forms.CharField(
        required=False,
        max_length=MAX_CHARS,
        label="API key",
        help_text="Stored in a file of this site that only its account can read, and never shown again",
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )
    key_env = forms.CharField(
        required=False,
        max_length=80,
        label="Or the variable that holds the key",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "list": "key-variables"}),
    )
    model_id = forms.CharField(
        required=False,
        max_length=200,
        label="Model ID",
        help_text="Only for a server without a list of models",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, allows: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.allows = allows  # Whether the operator pressed the button that allows the host.
        self.offered_host, self.allowed_host = "", ""
        self.set_variables = sorted(name for name in PROVIDER_KEYS if read_key(name))
        state = f"Set on this site: {', '.join(self.set_variables)}" if self.set_variables else "None is set now"
        self.fields["key_env"].help_text = f"Such as OPENAI_API_KEY. {state}"

    def clean_base_url(self) -> str:
        return str(self.cleaned_data["base_url"]).strip().rstrip("/")

    def clean_key_env(self) -> str:
        name: str = self.cleaned_data["key_env"].strip()
        if name and (problem := find_name_problem(name)):
            raise forms.ValidationError(problem)
        if name and not read_key(name):
            raise forms.ValidationError(
                f"{name} is not set in the environment of this site. Set it and restart the site, or paste the key."
            )
        return name

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("key") and cleaned.get("key_env"):
            self.add_error("key_env", "Paste the key or name a variable, not both.")
        url = cleaned.get("base_url", "")
        provider = PROVIDERS.get(cleaned.get("provider", ""))
        if provider is not None and not url and (provider.is_self_hosted or provider.needs_url):
            server = "your server" if provider.is_self_hosted else provider.label
            self.add_error("base_url", f"Enter the address of {server}.")
        if provider is not None and not provider.models_path and not cleaned.get("model_id"):
            self.add_error("model_id", f"{provider.label} has no list of models. Enter the ID of a model.")
        if url:
            self._check_host(url)
        return cleaned

    def _check_host(self, url: str) -> None:
        """Refuse a host that is not allowed. Offer the operator to allow it if it is public."""
        stored = Endpoint.objects.filter(base_url=url).exclude(allowed_host="").values_list("allowed_host", flat=True)
        problem = find_url_problem(url, [*settings.LLM_ALLOWED_HOSTS, *stored])
        if problem is None:
            return
        if "is not on the list of allowed hosts" not in problem:
            self.add_error("base_url", problem)
            return
        host, refusal = read_grantable_host(url)
        if refusal:
            self.add_error("base_url", refusal)
        elif self.allows:
            self.allowed_host = host
        else:
            self.offered_host = host
            self.add_error("base_url", f"{host} is not on the list of allowed hosts. Check the address, then allow it.")


class DataForm(forms.Form):
    """A dataset as a file or as pasted text. A worker reads it."""

    file = UploadField(
        "items",
        f"{TABLES},.zip",
        required=False,
        label="File",
        help_text="Excel, OpenDocument, CSV, JSON lines, JSON, Parquet, or a zip of images with or without a table",
    )
    pasted = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_PASTED,
        label="Or paste rows",
        help_text="CSV with a header, a copied range of a spreadsheet, or JSON lines",
        widget=forms.Textarea(attrs={"rows": 4, "class": "mono", "spellcheck": "false"}),
    )

    repository = forms.RegexField(
        REPOSITORY,
        required=False,
        max_length=200,
        label="Or a dataset of the Hugging Face hub",
        help_text="OWNER/NAME, as in the address of its page. Only public datasets",
        error_messages={"invalid": "Write OWNER/NAME, such as openai/gsm8k, without the address of the hub."},
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_bound:
            self.fields["file"].required = True  # The label then has no "optional". `clean` asks for one of the three.

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        given = [cleaned.get("file"), cleaned.get("pasted", "").strip(), cleaned.get("repository")]
        if not self.errors and sum(map(bool, given)) != 1:
            self.add_error("file", "Choose a file, paste rows, or name a dataset of the hub, one of the three.")
        return cleaned

    def read_file(self) -> UploadedFile[Any]:
        """Return the file, or the pasted rows as a file. A range copied from a spreadsheet has tabs."""
        if file := self.cleaned_data.get("file"):
            chosen: UploadedFile[Any] = file
            return chosen
        text: str = self.cleaned_data["pasted"].strip("\r\n")
        head = text.lstrip().partition("\n")[0]
        suffix = "jsonl" if head.startswith("{") else "tsv" if "\t" in head else "csv"
        return SimpleUploadedFile(f"pasted.{suffix}", text.encode())


def build_slug(file_name: str) -> str:
    """Return the name of a dataset for a file."""
    return slugify(PurePath(file_name).stem)[:60].strip("-_") or "my-data"


class QuestionForm(forms.Form):
    """The models, the prompt and the scorer of the first run."""

    models = forms.ModelMultipleChoiceField(
        queryset=LanguageModel.objects.none(), label="Models", widget=forms.CheckboxSelectMultiple
    )
    prompt = forms.CharField(
        max_length=20_000,
        strip=False,
        label="Prompt",
        help_text="Sent once for each item. The words in double braces become the item's columns",
        widget=forms.Textarea(attrs={"rows": 7, **TEMPLATE}),
    )
    scorer = forms.ChoiceField(required=False, label="Graded by")
    max_usd = AmountField(
        required=False,
        min_value=0,
        max_digits=12,
        decimal_places=4,
        label="Budget",
        help_text="US dollars; a hard limit. It needs models with known prices",
    )

    instructions = forms.CharField(
        max_length=2000,
        label="Rating question",
        help_text="Becomes {{dimension_instructions}} in the prompt",
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    scale_min = forms.IntegerField(min_value=-1000, max_value=1000, label="Scale from")
    scale_max = forms.IntegerField(min_value=-1000, max_value=1000, label="Scale to")

    def __init__(self, *args: Any, rows: Any, guess: first_study.Guess, **kwargs: Any) -> None:
        """guess: of the dataset. With norms, the form asks for a rating; else for an answer that a rule scores."""
        guessed: dict[str, Any] = {"prompt": guess.prompt, "scorer": guess.scorer, "instructions": guess.instructions}
        guessed |= {"scale_min": guess.scale[0], "scale_max": guess.scale[1]}
        kwargs["initial"] = guessed | kwargs.get("initial", {})
        super().__init__(*args, **kwargs)
        self.rated = guess.dimension
        for name in ("scorer",) if self.rated else ("instructions", "scale_min", "scale_max"):
            del self.fields[name]
        offer_rows(self, "models", rows, lambda row: row.name)
        if self.rated:
            return
        get_choice_field(self, "scorer").choices = [("", "Nothing yet"), *list_scorer_choices()]

    def clean(self) -> dict[str, Any]:
        """Add the dimension to rate, or None."""
        cleaned = super().clean() or {}
        low, high = cleaned.get("scale_min"), cleaned.get("scale_max")
        if low is not None and high is not None and low >= high:
            self.add_error("scale_max", "The end of the scale must be above its start.")
        cleaned["dimension"] = None
        if self.rated and cleaned.get("instructions") and low is not None and high is not None and low < high:
            cleaned["dimension"] = first_study.build_dimension(self.rated, cleaned["instructions"], (low, high))
        return cleaned
