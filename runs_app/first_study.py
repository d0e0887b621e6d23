"""The first study of a site: from the address of a server and a dataset to answers, with the usual mechanisms.

Nothing here has rules of its own: endpoints have a history, datasets and prompts need an approval by a person who may
give it, and a launch plans trials as every other launch does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.text import slugify

from datasets_app.models import Dataset, Item, Norm
from evalsite.lib.history import save_with_history
from evalsite.lib.ops.environment import KEY_PREFIX
from evalsite.lib.text.hashing import hash_content
from runs_app import run_control
from runs_app.engine.preflight import count_tokens
from runs_app.engine.requests import build_question
from runs_app.experiment_files.row_builder import RowBuilder
from runs_app.experiment_files.specs import PromptSpec, SamplerSpec
from runs_app.llm import prompts
from runs_app.llm.keys import KeyRefused, load_stored_keys, store_key
from runs_app.models import Dimension, Endpoint, Experiment, LanguageModel, Preflight, Prompt, Sampler
from runs_app.planning.cost_estimate import DesignSummary, summarise_design
from runs_app.planning.design import Design
from runs_app.planning.shipped_designs import GENERAL_PROMPTS, GENERAL_SAMPLERS
from runs_app.planning.work import PlanError
from runs_app.taskqueue.enqueue import enqueue_try

PILOT = 20  # Trials of the first run.
SAMPLER = "up-to-2k"  # One of the shipped samplers.
REASON = "Approved on Start, to run its first trials"
MAX_SHOWN_TARGETS = 500
SCALES = ((1, 7), (1, 9), (0, 10), (0, 100))
"""Usual rating scales. The first one that contains the norms is guessed."""
NUMBER = re.compile(r"[-+]?[0-9][0-9,]*(\.[0-9]+)?\Z")


# Models ---------------------------------------------------------------------------------------------------------------


def prepare_endpoint(provider: str, base_url: str, allowed_host: str = "") -> Endpoint:
    """Return the endpoint with this provider and address, or a new unsaved one with a name from the address."""
    endpoint = Endpoint.objects.filter(provider=provider, base_url=base_url).order_by("pk").first()
    if endpoint is None:
        parts = urlsplit(base_url)
        address = parts.hostname or provider
        name = slugify(f"{address.replace('.', '-')}-{parts.port}" if parts.port else address.replace(".", "-"))[:60]
        taken = set(Endpoint.objects.values_list("name", flat=True))
        endpoint_name = next(free for free in (name, *(f"{name}-{n}" for n in range(2, 1000))) if free not in taken)
        endpoint = Endpoint(provider=provider, base_url=base_url, name=endpoint_name)
    endpoint.allowed_host = allowed_host or endpoint.allowed_host
    return endpoint


@contextmanager
def keep_key(endpoint: Endpoint, key: str) -> Iterator[None]:
    """Store a pasted key for this endpoint, under a variable of its name. An error in the block restores the old key.

    Raise KeyRefused if it is no key, or if the environment sets the variable.
    """
    name = f"{KEY_PREFIX}{endpoint.name.upper().replace('-', '_')}"[:80]
    if os.environ.get(name, "").strip():
        raise KeyRefused(f"The environment sets {name}, and comes first. Leave the key empty and name this variable.")
    former = load_stored_keys().get(name, "")
    store_key(name, key)
    endpoint.key_env = name
    try:
        yield
    except Exception:
        store_key(name, former)
        raise


def save_endpoint(endpoint: Endpoint, *, by: User) -> None:
    """Save the endpoint with its history. Raise ValidationError if it is invalid."""
    endpoint.full_clean()
    reason = f"On Start; the operator allowed the host {endpoint.allowed_host}" if endpoint.allowed_host else "On Start"
    save_with_history(endpoint, by=by, reason=reason)


def list_usable_models(user: Any) -> Any:
    rows = LanguageModel.objects.visible_to(user).filter(is_active=True, endpoint__is_active=True)
    return rows.select_related("endpoint").order_by("name")


# Data -----------------------------------------------------------------------------------------------------------------


def find_dataset(user: Any, key: Any = None) -> Dataset | None:
    """Return the dataset with this key, or the user's newest one, or the newest approved one."""
    rows = Dataset.objects.visible_to(user).exclude(status=Dataset.Status.ARCHIVED).filter(active_count__gt=0)
    if key is not None:
        chosen: Dataset | None = rows.filter(pk=key).first()
        return chosen
    own = rows.filter(created_by=user).order_by("-pk").first()
    newest: Dataset | None = own or rows.filter(status=Dataset.Status.APPROVED).order_by("-pk").first()
    return newest


def may_approve(dataset: Dataset, user: Any) -> bool:
    """Return whether Start may approve this dataset for the user: it is their own draft, and they may approve."""
    return dataset.created_by_id == user.pk and bool(user.has_perm("datasets_app.approve_dataset"))


# The question ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guess:
    """A prompt and a scorer for a dataset, with the reason. dimension: what to rate, if the items have human norms."""

    prompt: str
    scorer: str
    reason: str
    dimension: str = ""
    scale: tuple[int, int] = (1, 7)

    @property
    def instructions(self) -> str:
        return f"How would you rate the {self.dimension.replace('_', ' ')} of this?" if self.dimension else ""

    def build_dimension(self) -> Dimension | None:
        """Return the guessed dimension, unsaved; None without norms."""
        return build_dimension(self.dimension, self.instructions, self.scale) if self.dimension else None


def guess_question(dataset: Dataset) -> Guess:
    """Return the prompt and the scorer that fit the columns of a dataset."""
    items = dataset.items.active()
    sample = list(items.order_by("position", "pk").values("input", "image", "target", "choices")[:MAX_SHOWN_TARGETS])
    targets = [row["target"].strip() for row in sample if row["target"].strip()]
    image = "{{image}}\n\n" if any(row["image"] for row in sample) else ""
    has_text = any(row["input"].strip() for row in sample)
    norms = Norm.objects.filter(item__in=items).order_by("pk").values_list("dimension", "mean")[:MAX_SHOWN_TARGETS]
    if norms and not targets:
        name = norms[0][0]
        lowest, highest = (end(mean for dimension, mean in norms if dimension == name) for end in (min, max))
        scale = next((ends for ends in SCALES if ends[0] <= lowest and highest <= ends[1]), SCALES[0])
        text = _get_text("rate-image", "")
        text = text if image and not has_text else text.replace("{{image}}", f"{image}{{{{input}}}}")
        return Guess(text, "", f"The items have human norms of {name}. Each answer is read as a rating.", name, scale)
    if sample and all(row["choices"] for row in sample) and targets:
        return Guess(_get_text("multiple-choice", image), "multiple_choice", "The items have choices and a target.")
    if not targets:
        text = _get_text("plain", image) if has_text else f"{image}Describe this image in one sentence."
        return Guess(text, "", "The items have no target. People or a judge can grade the answers later.")
    answer_line = str(GENERAL_PROMPTS["answer-line"]["messages"][0]["content"]).rpartition("\n")[2]
    text = _get_text("answer-line", image) if has_text else f"{image}What does this image show?\n\n{answer_line}"
    if all(NUMBER.match(target) for target in targets):
        return Guess(text, "numeric", "Every target is a number.")
    return Guess(text, "exact_match", "The items have a target.")


def _get_text(name: str, image: str) -> str:
    return image + str(GENERAL_PROMPTS[name]["messages"][0]["content"])


def list_variables(item: Item) -> list[str]:
    """Return the placeholders that this item can fill, in the order of a prompt."""
    names = ["image"] if item.image_id else []
    names += ["input"] if item.input else []
    names += ["choices"] if item.choices else []
    names += ["category"] if item.category else []
    return [prompts.format_placeholder(name) for name in (*names, *(f"meta.{name}" for name in item.metadata))]


def build_dimension(name: str, instructions: str, scale: tuple[int, int]) -> Dimension:
    """Return a dimension, unsaved."""
    ends = {"scale_min": scale[0], "scale_max": scale[1]}
    return Dimension(name=slugify(name)[:80], title=name.replace("_", " ")[:120], instructions=instructions, **ends)


def build_prompt(text: str, dimension: Dimension | None) -> Prompt:
    """Return the prompt, unsaved. With a dimension, its answers are read as ratings."""
    answer_format = Prompt.AnswerFormat.RATING if dimension else Prompt.AnswerFormat.TEXT
    return Prompt(name="first-question", messages=build_turns(text.replace("\r\n", "\n")), answer_format=answer_format)


def build_turns(text: str) -> list[prompts.Turn]:
    return [prompts.Turn(role="user", content=text)]


def render_question(
    text: str, item: Item, dimension: Dimension | None = None, *, image_address: str | None = None
) -> list[prompts.Message]:
    """Return the messages of this prompt for an item. Raise PromptError with the reason if that is impossible.

    Without `image_address`, an image has its hash and type in place of its bytes, as a try stores it.
    """
    prompt = build_prompt(text, dimension)
    if problems := prompts.validate(prompt.messages):
        raise prompts.PromptError(" ".join(problem.removeprefix("Turn 1: ") for problem in problems))
    return render_for_item(prompt, item, dimension, image_address=image_address)


def render_for_item(
    prompt: Prompt, item: Item, dimension: Dimension | None, *, image_address: str | None = None
) -> list[prompts.Message]:
    """Return the messages of a valid prompt for an item, as `render_question` does."""
    question = build_question(item, dimension)
    stored = f"sha256:{question.image}:{question.image_type}" if question.image else None
    try:
        hint = prompts.format_hint(cast(prompts.AnswerFormat, prompt.answer_format), question.scale)
        return prompts.render(prompt.messages, question.variables, image_address or stored, hint=hint)
    except prompts.RequestTooLong:
        raise
    except prompts.PromptError as problem:
        known = ", ".join(list_variables(item))
        raise prompts.PromptError(f"{problem}. The items have {known}.") from None


def try_question(
    text: str, item: Item, model: LanguageModel, dimension: Dimension | None = None, *, by: User
) -> Preflight:
    """Enqueue one call of the model about one item. Nothing is planned or approved for it."""
    about = f"{item.dataset}: {item.key}"[:320]
    messages = render_question(text, item, dimension)
    return enqueue_try(model, by=by, about=about, messages=messages, parameters=limit_try(None))


def limit_try(sampler: Sampler | None) -> dict[str, Any]:
    """Return the parameters of a try. Without its own limit, an answer has at most the tokens of the first run."""
    if sampler is None:
        return build_sampler().content
    return sampler.content if sampler.limits_output else build_sampler().content | sampler.content


def bound_try(model: LanguageModel, sent: list[prompts.Message], sampler: Sampler | None) -> Decimal | None:
    """Return the most that a try with these messages can cost, or None if the price is unknown."""
    call = Preflight(model=model, messages=sent, parameters=limit_try(sampler))
    return model.prices.compute_ceiling(*count_tokens(call))


def build_sampler() -> Sampler:
    """Return the sampler of the first run, unsaved. Its limit of the answer bounds the cost, which is shown before."""
    return Sampler(name=SAMPLER, **GENERAL_SAMPLERS[SAMPLER])


# The first run --------------------------------------------------------------------------------------------------------


def estimate_run(
    dataset: Dataset, models: Sequence[LanguageModel], text: str, dimension: Dimension | None = None
) -> DesignSummary:
    """Return the size and the cost of the first run. Nothing is saved."""
    experiment, prompt = Experiment(slug="first", dataset=dataset, scorers=[]), build_prompt(text, dimension)
    prompt.pk = 0
    rated = [dimension] if dimension else []
    return summarise_design(Design(experiment, list(models), [prompt], [build_sampler()], rated), pilot=PILOT)


def launch_first(
    dataset: Dataset, models: Sequence[LanguageModel], text: str, choices: Mapping[str, Any], *, by: User
) -> Experiment:
    """Approve the user's own draft, create the experiment, and launch a pilot of it.

    `choices` may have a `scorer`, a `dimension` to rate, and a budget, `max_usd`. Raise PlanError, and change nothing,
    if the design has problems or an approval is missing.
    """
    with transaction.atomic():
        if dataset.is_draft:
            if not may_approve(dataset, by):
                raise PlanError([f"{dataset} is a draft. Ask a curator to approve it, then run again"])
            dataset.approve(by=by, reason=REASON)
        taken = set(Experiment.objects.filter(slug__startswith=dataset.slug[:60]).values_list("slug", flat=True))
        names = (f"{dataset.slug[:60]}-first", *(f"{dataset.slug[:60]}-first-{n}" for n in range(2, 10_000)))
        experiment = Experiment(
            slug=next(name for name in names if name not in taken),
            title=f"First run of {dataset.title or dataset.slug}"[:200],
            dataset=dataset,
            owner=by,
            scorers=[choices["scorer"]] if choices.get("scorer") else [],
            max_usd=choices.get("max_usd"),
        )
        try:
            experiment.full_clean()
        except ValidationError as error:
            raise PlanError(error.messages) from None
        experiment.save()
        experiment.language_models.set(models)
        dimension = choices.get("dimension")
        experiment.prompts.set([_find_or_create_prompt(build_prompt(text, dimension), by)])
        builder = RowBuilder(by, trusted=False, reason="Written on Start")
        spec = SamplerSpec.model_validate({"name": SAMPLER, **GENERAL_SAMPLERS[SAMPLER]})
        sampler: Sampler | None = builder.find_or_create_sampler("sampler", spec)
        if sampler is None:
            raise PlanError(builder.problems)
        experiment.samplers.set([sampler])
        if dimension is not None:
            experiment.dimensions.set([_find_or_create_dimension(dimension, by)])
        design = Design.load(experiment)
        if problems := design.find_problems():
            raise PlanError(problems)
        approved = summarise_design(design, pilot=PILOT).estimate
        run_control.launch(experiment, by=by, pilot=PILOT, approved=approved)
    return experiment


def _find_or_create_prompt(wanted: Prompt, by: User) -> Prompt:
    """Return an approved prompt with this content, or a new version, approved if its author may approve prompts."""
    content_hash = hash_content(wanted.content)
    same: Prompt | None = (
        Prompt.objects.filter(content_hash=content_hash, status=Prompt.Status.APPROVED).order_by("pk").first()
    )
    if same is not None:
        return same
    builder = RowBuilder(by, trusted=False, reason="Written on Start")
    spec = PromptSpec.model_validate({"name": wanted.name, **wanted.content})
    prompt: Prompt | None = builder.find_or_create_prompt("prompt", spec)
    if prompt is None:
        raise PlanError(builder.problems)
    return prompt


def _find_or_create_dimension(dimension: Dimension, by: User) -> Dimension:
    builder = RowBuilder(by, trusted=False, reason="Written on Start")
    found: Dimension | None = builder.find_or_approve("dimension", dimension)
    if found is None:
        raise PlanError(builder.problems)
    return found
