"""Previews of prompts, and the turns of a trial: the exact messages, with the image at its position."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from datasets_app.models import Item
from runs_app.engine import requests
from runs_app.llm import judge_prompt, prompts
from runs_app.models import Dimension, Experiment, Prompt, Trial

PLACEHOLDER_SALT = "0123456789"


@dataclass(frozen=True, slots=True)
class PreviewTurn:
    """One part of a message: a text, an image, or an image with the text after it. note: such as a tool's name.

    size: of the whole text in bytes, if `text` may be its beginning only, else 0.
    """

    role: str
    text: str = ""
    image_url: str = ""
    image_alt: str = ""
    note: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns. `problem` is the error message if there are none."""

    turns: list[PreviewTurn]
    problem: str = ""


def rebuild_turns(trial: Trial) -> Turns:
    """Return the turns that were sent for a trial. Fetch its run's design, item, image and dimension with the trial.

    An imported trial has its own conversation if the source had it, here without its answer.
    """
    if trial.messages == []:
        return Turns([], "The gateway has reserved this call. No program has asked for it yet.")
    if trial.messages is not None:
        *before, last = trial.messages
        is_answer = (last["role"], last["content"], "tool_calls" in last) == ("assistant", trial.answer, False)
        messages = before if is_answer else trial.messages
        return Turns([turn for message in messages for turn in _split_stored(message, trial)])
    if not trial.run.condition.content["prompt"]["messages"]:
        return Turns([], "The imported files do not have the messages of this call.")
    image = trial.asked_item.image
    try:
        messages = requests.rebuild_messages(trial, image.url if image else None)
    except prompts.PromptError as problem:
        return Turns([], str(problem))
    return Turns(build_turns(messages, trial.asked_item))


def _split_stored(message: Mapping[str, Any], trial: Trial) -> Iterator[PreviewTurn]:
    """Yield the turns of a stored message: its reasoning, its text with the item's image, and each call of a tool."""
    role = message["role"]
    if message.get("reasoning"):
        yield PreviewTurn(role, message["reasoning"], note="reasoning", size=message.get("reasoning_size", 0))
    image = trial.asked_item.image if message.get("image") else None
    left_out = [f"[{kind}: not imported]" for kind in message.get("left_out", ())]
    text = "\n\n".join(filter(None, [message["content"], *left_out]))
    calls = message.get("tool_calls", ())
    if text or image or not calls:
        alt = f"Image of {trial.asked_item.key}" if image else ""
        url, size = image.url if image else "", message.get("size", 0)
        yield PreviewTurn(role, text, url, alt, message.get("function", ""), size)
    for call in calls:
        arguments = json.dumps(call["arguments"], indent=2, ensure_ascii=False)
        yield PreviewTurn(role, arguments, note=f"calls {call['function']}")


def build_turns(messages: Iterable[prompts.Message], item: Item) -> list[PreviewTurn]:
    """Return the turns of rendered messages, for a page."""
    return [turn for message in messages for turn in _split_parts(message["role"], message["content"], item)]


def _split_parts(role: str, content: str | list[dict[str, Any]], item: Item) -> list[PreviewTurn]:
    """Return one turn per part, in order. Join an image with the text directly after it."""
    if isinstance(content, str):
        return [PreviewTurn(role, content)]
    turns: list[PreviewTurn] = []
    for turn in (_build_turn(role, part, item) for part in content):
        if turns and turns[-1].image_url and not turns[-1].text and turn.text:
            turns[-1] = replace(turns[-1], text=turn.text)
        else:
            turns.append(turn)
    return turns


def _build_turn(role: str, part: dict[str, Any], item: Item) -> PreviewTurn:
    if part["type"] == "image_url":
        return PreviewTurn(role, image_url=part["image_url"]["url"], image_alt=f"Image of {item.key}")
    return PreviewTurn(role, part["text"])


def preview_draft(experiment: Experiment, prompt: Prompt, item: Item, dimension: Dimension | None) -> Turns:
    """Return the turns of the first trial of this item in an experiment that may not be planned yet.

    The salt is a placeholder, because planning creates the real one.
    """
    question = requests.build_question(item, dimension)
    image = item.image
    try:
        hint = prompts.format_hint(cast(prompts.AnswerFormat, prompt.answer_format), question.scale)
        messages = prompts.render(
            prompt.messages,
            question.variables,
            image.url if image else None,
            hint=hint,
            salt=PLACEHOLDER_SALT if experiment.cache_buster else "",
        )
    except prompts.RequestTooLong as problem:
        return Turns([], f"prompt {prompt}, item {item.key}: {problem}")
    except prompts.PromptError as problem:
        return Turns([], str(problem))
    return Turns(build_turns(messages, item))


def preview_verdict(rubric: Mapping[str, Any], subject: Trial, rival: Trial | None, item_rubric: str | None) -> Turns:
    """Return the turns that a judge would get about stored answers. `rubric` is a Rubric's content, saved or not."""
    image = subject.asked_item.image
    try:
        sent = render_verdict(rubric, subject, rival, item_rubric, image_address=image.url if image else None)
    except prompts.PromptError as problem:
        return Turns([], str(problem))
    return Turns(build_turns(sent, subject.asked_item))


def render_verdict(
    rubric: Mapping[str, Any],
    subject: Trial,
    rival: Trial | None,
    item_rubric: str | None,
    *,
    image_address: str | None = None,
) -> list[prompts.Message]:
    """Return the messages that a judge would get about stored answers. Raise PromptError if that is impossible.

    Without `image_address`, an image has its hash and type in place of its bytes, as a try stores it.
    """
    variables = judge_prompt.build_rubric_variables(rubric) | judge_prompt.build_answer_variables(
        subject.answer, rival.answer if rival else None
    )
    if item_rubric is not None:
        variables[judge_prompt.ITEM_RUBRIC] = item_rubric
    closing = (
        ""
        if prompts.uses_variable(rubric["messages"], judge_prompt.VERDICT_FORM)
        else variables[judge_prompt.VERDICT_FORM]
    )
    question = requests.build_question(subject.asked_item, subject.dimension).with_judge_variables(variables)
    stored = f"sha256:{question.image}:{question.image_type}" if question.image else None
    return prompts.render(rubric["messages"], question.variables, image_address or stored, hint=closing)


def preview_writer(messages: list[prompts.Turn], trial: Trial) -> Turns:
    """Return the turns that a rubric writer would get about the item of this trial."""
    image = trial.asked_item.image
    question = requests.build_question(trial.asked_item, trial.dimension).with_judge_variables({})
    try:
        sent = prompts.render(messages, question.variables, image.url if image else None)
    except prompts.PromptError as problem:
        return Turns([], str(problem))
    return Turns(build_turns(sent, trial.asked_item))
