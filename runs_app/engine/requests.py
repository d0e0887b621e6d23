"""Requests: the stored content of a trial's condition, rendered for its item."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from datasets_app.models import Asset, Item
from evalsite.lib.ops.shared_files import SharedFile, fetch_all
from evalsite.lib.rating_scale import RatingScale
from runs_app.engine.response_cache import build_cache_key
from runs_app.experiment_options import OnEmpty, OnUnreadable
from runs_app.llm import judge_prompt, prompts
from runs_app.llm.calls import CallRequest, ImageURL
from runs_app.models import Condition, Dimension, ItemText, LanguageModel, Run, Trial
from runs_app.pricing.costs import Prices


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a call and its limits. They may change without changing the request's content.

    `marks_head` adds cache marks to the part of the prompt that all items share. `local_model` is the key of a model on
    a local server, which the worker may unload. `refuses_schema` sends the request without its schema.
    """

    provider: str
    model: str
    base_url: str | None
    key_env: str | None
    is_free: bool
    prices: Prices
    timeout_s: float
    structured_output: bool
    routes: tuple[str, ...] = ()
    marks_head: bool = False
    local_model: int | None = None
    max_output_tokens: int | None = None
    model_id: int | None = None
    refuses_schema: bool = False
    allowed_host: str = ""


@dataclass(frozen=True, slots=True)
class RunDesign:
    """The design of a run's requests: the content of its condition, and its wave's offset among the epochs.

    `salted` adds a unique suffix to each request. `cached` allows answers from the response cache. `rubric_variables`
    are the variables of a judge's rubric. `texts` is the hash of the text set that the judge reads. `closing` asks for
    the form of the verdict, unless the prompt itself does.
    """

    run_id: int
    target: Target
    turns: list[prompts.Turn]
    answer_format: prompts.AnswerFormat
    parameters: dict[str, Any]
    salted: bool
    cached: bool
    epoch_offset: int
    stage: str = Condition.Stage.GENERATE
    rubric_variables: Mapping[str, str] = field(default_factory=dict)
    texts: str = ""
    closing: str = ""
    reruns_empty: bool = False
    prompt_name: str = ""
    reruns_unreadable: bool = False

    @property
    def sees_target(self) -> bool:
        """Return whether the request may contain the item's target: that of a judge or a rubric writer may."""
        return self.stage != Condition.Stage.GENERATE

    def fetch_item_texts(self, item_ids: Collection[int]) -> dict[int, str]:
        """Return the texts of these items in the design's text set."""
        if not self.texts:
            return {}
        rows = ItemText.objects.filter(text_set__content_hash=self.texts, item__in=item_ids)
        return dict(rows.order_by("text_set").values_list("item_id", "text"))

    def build_messages(self, question: Question, sample_idx: int, image_address: str | None) -> list[prompts.Message]:
        """Return the exact messages of one trial, with `image_address` as the image's URL.

        Raise PromptError as `render` does.
        """
        salt = prompts.make_salt(self.run_id, question.key, question.dimension, sample_idx) if self.salted else ""
        hint = prompts.format_hint(self.answer_format, question.scale) or self.closing
        try:
            return prompts.render(self.turns, question.variables, image_address, hint=hint, salt=salt)
        except prompts.RequestTooLong as error:
            raise prompts.RequestTooLong(f"prompt {self.prompt_name}, item {question.key}: {error}") from None

    def prepare_request(self, question: Question, sample_idx: int) -> PreparedRequest:
        """Return one trial's request.

        Raise PromptError if the prompt cannot be rendered for this item, and OSError if its image file is missing.
        """
        parameters = self.build_sampler_parameters(sample_idx)
        response_format = None
        if self.target.structured_output:
            response_format = prompts.build_response_format(self.answer_format, question.scale)
        hashed_messages = self.build_messages(
            question, sample_idx, f"sha256:{question.image}" if question.image else None
        )
        messages = hashed_messages
        if question.image:
            messages = self.build_messages(question, sample_idx, images.load(question.image, question.image_type))
        target = self.target
        if target.marks_head:
            messages = prompts.mark_head(self.turns, question.variables, messages, shared=self.rubric_variables)
        request = CallRequest(
            provider=target.provider,
            model=target.model,
            base_url=target.base_url,
            key_env=target.key_env,
            messages=messages,
            parameters=parameters,
            response_format=response_format,
            timeout_s=target.timeout_s,
            is_free=target.is_free,
            prices=target.prices,
            max_output_tokens=target.max_output_tokens,
            allowed_host=target.allowed_host,
        )
        request_hash = prompts.compute_request_hash(target.model, hashed_messages, parameters, response_format)
        epoch = self.epoch_offset + sample_idx + 1
        cache_key = build_cache_key(target.provider, request_hash, epoch) if self.cached else None
        return PreparedRequest(request, request_hash, cache_key)

    def build_sampler_parameters(self, sample_idx: int) -> dict[str, Any]:
        """Return the sampler's settings.

        The seed grows by one each epoch, because an equal seed would draw an equal answer.
        """
        parameters = dict(self.parameters)
        if "seed" in parameters:
            parameters["seed"] += self.epoch_offset + sample_idx
        return parameters

    def build_judge_variables(self, subject: str | None, rival: str | None, item_rubric: str | None) -> dict[str, str]:
        """Return the variables that a judge gets besides the item's. A missing answer or rubric has no variable."""
        answers = {} if subject is None else judge_prompt.build_answer_variables(subject, rival)
        rubric = {} if item_rubric is None else {judge_prompt.ITEM_RUBRIC: item_rubric}
        return {**self.rubric_variables, **answers, **rubric}


@dataclass(frozen=True, slots=True)
class Question:
    """The content of one trial's request: the item's variables and, for a rating, its scale.

    `withheld` are the variables that the answering model may not see: the target, and how it is graded.
    """

    key: str
    variables: dict[str, str]
    dimension: str = ""
    scale: RatingScale | None = None
    image: str | None = None  # sha256
    image_type: str = ""
    withheld: Mapping[str, str] = field(default_factory=dict)

    def with_judge_variables(self, rubric_variables: Mapping[str, str]) -> Question:
        """Return this question for a judge or a rubric writer: with all variables and without a scale."""
        return replace(self, variables={**self.variables, **self.withheld, **rubric_variables}, scale=None)


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request ready to send, with its hash. It has a `cache_key` if the response cache may answer it."""

    request: CallRequest
    request_hash: str
    cache_key: str | None = None

    def reroute(self, routes: Sequence[str], attempts: int, failed_at: Sequence[str] = ()) -> PreparedRequest:
        """Send a retry to the next of the provider's routes at which the trial has not failed yet.

        `failed_at` names the providers of its failed attempts, the oldest first. If all routes have failed, the one
        that failed first is next. The first attempt may take any route. A request that names a route keeps it. The
        route is not part of the request's content, so the hash stays the same.
        """
        request = self.request
        if (attempts < 2 and not failed_at) or not routes or "provider" in request.parameters:
            return self
        start = max(0, attempts - 2) % len(routes)
        last_failure = {_normalize_route(name): place for place, name in enumerate(failed_at)}
        in_turn = [*routes[start:], *routes[:start]]
        chosen = min(in_turn, key=lambda name: last_failure.get(_normalize_route(name), -1))
        route = {"order": [chosen], "allow_fallbacks": False}
        return replace(self, request=replace(request, parameters={**request.parameters, "provider": route}))

    def drop_schema(self) -> PreparedRequest:
        """Return the same request without a schema, for a provider that has refused one. Its hash stays the same."""
        return replace(self, request=replace(self.request, response_format=None))


def build_target(model: LanguageModel, timeout_s: float) -> Target:
    """Return the target of a model that was fetched with its endpoint. This runs no query."""
    endpoint = model.endpoint
    return Target(
        provider=endpoint.provider,
        model=model.model,
        base_url=endpoint.base_url or None,
        key_env=endpoint.key_env or None,
        is_free=endpoint.is_free,
        prices=model.prices,
        timeout_s=timeout_s,
        structured_output=model.structured_output,
        routes=tuple(endpoint.provider_routes),
        marks_head=model.marks_head,
        local_model=model.pk if endpoint.local_server else None,
        max_output_tokens=model.max_output_tokens,
        model_id=model.pk,
        refuses_schema=model.refuses_schema,
        allowed_host=endpoint.allowed_host,
    )


def build_run_design(run: Run) -> RunDesign:
    """Return the design of a run that was fetched by `with_design()`. This runs no query."""
    condition, experiment = run.condition, run.experiment
    content = condition.content
    rubric = content.get("rubric")
    rubric_variables = judge_prompt.build_rubric_variables(rubric) if rubric else {}
    turns = content["prompt"]["messages"]
    generates = condition.stage == Condition.Stage.GENERATE
    return RunDesign(
        run_id=run.pk,
        target=build_target(condition.model, experiment.request_timeout_s),
        turns=turns,
        answer_format=content["prompt"]["answer_format"],
        parameters=content["sampler"],
        salted=experiment.cache_buster and generates,
        cached=experiment.cache and run.wave.number == 0,
        epoch_offset=run.wave.epoch_offset,
        stage=condition.stage,
        rubric_variables=rubric_variables,
        texts=content.get("texts", ""),
        closing=""
        if prompts.uses_variable(turns, judge_prompt.VERDICT_FORM)
        else rubric_variables.get(judge_prompt.VERDICT_FORM, ""),
        reruns_empty=generates and experiment.on_empty == OnEmpty.RERUN,
        reruns_unreadable=generates and experiment.on_unreadable == OnUnreadable.RERUN,
        prompt_name=condition.prompt_label,
    )


def build_scale(dimension: Dimension | None) -> RatingScale | None:
    if dimension is None:
        return None
    labels = {int(point): label for point, label in dimension.labels.items()}
    return RatingScale(dimension.scale_min, dimension.scale_max, labels)


def build_question(item: Item, dimension: Dimension | None) -> Question:
    """Return the question of an item. Fetch the item with its image."""
    scale = build_scale(dimension)
    variables = prompts.build_variables(
        key=item.key,
        input=item.input,
        category=item.category,
        choices=item.choices,
        metadata=item.metadata,
        dimension=dimension.name if dimension else "",
        dimension_instructions=dimension.instructions if dimension else "",
        scale=scale,
    )
    asset: Asset | None = item.image
    return Question(
        key=item.key,
        variables=variables,
        dimension=dimension.name if dimension else "",
        scale=scale,
        image=asset.sha256 if asset else None,
        image_type=asset.content_type if asset else "",
        withheld={"target": item.target, "grading_scheme": item.grading_scheme},
    )


def _normalize_route(name: str) -> str:
    """Return a provider's name without case and punctuation: a router names "google-vertex" as "Google Vertex"."""
    return "".join(character for character in name.partition("/")[0].casefold() if character.isalnum())


class ImageCache:
    """The data URLs of the images used last, so that calls share them. MAX_BYTES limits their total size."""

    MAX_BYTES = 64 * 2**20  # 600 images of 80 kB.

    def __init__(self) -> None:
        self._urls: OrderedDict[str, ImageURL] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def load(self, sha256: str, content_type: str) -> ImageURL:
        """Return the image as a data URL. Raise OSError if its file cannot be read, or StorageUnavailable."""
        with self._lock:
            if sha256 in self._urls:
                self._urls.move_to_end(sha256)
                return self._urls[sha256]
        file = _find_file(sha256, content_type)
        url = ImageURL.from_data(file.fetch().read_bytes(), content_type)
        with self._lock:
            if sha256 not in self._urls:
                self._urls[sha256] = url
                self._size += len(url)
            while self._size > self.MAX_BYTES:
                self._size -= len(self._urls.popitem(last=False)[1])
        return url

    def fetch_files(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Fetch the files of these images, by hash and type, from the bucket of the site to this machine."""
        with self._lock:
            missing = {image for image in wanted if image[0] not in self._urls}
        fetch_all(_find_file(*image) for image in missing)


def _find_file(sha256: str, content_type: str) -> SharedFile:
    return Asset(sha256=sha256, format=content_type.removeprefix("image/")).shared_file


images = ImageCache()


def rebuild_messages(trial: Trial, image_address: str | None) -> list[prompts.Message]:
    """Return a trial's messages, for a page. Fetch the trial with its run's design, item, image and dimension."""
    design, question = build_run_design(trial.run), build_question(trial.asked_item, trial.dimension)
    if design.sees_target:
        subject, rival = (judged.answer if judged else None for judged in (trial.subject, trial.rival))
        item_key = trial.asked_item.pk
        item_rubric = design.fetch_item_texts([item_key]).get(item_key)
        question = question.with_judge_variables(design.build_judge_variables(subject, rival, item_rubric))
    return design.build_messages(question, trial.sample_idx, image_address)
