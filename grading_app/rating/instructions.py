"""The instructions for a person who rates by a rubric: the judge's instructions without the reply format."""

from __future__ import annotations

import re

from datasets_app.models import Item
from grading_app.models import RatingQueue
from runs_app.llm import judge_prompt, prompts

PLACEHOLDERS = {
    "input": "the question",
    "target": "the reference answer",
    "grading_scheme": "the grading scheme",
    "choices": "the choices",
    "category": "the category",
    "key": "the key",
    "image": "the image",
    judge_prompt.ITEM_RUBRIC: "the rubric of this question",
    "answer": "the answer",
    "answer_a": "answer A",
    "answer_b": "answer B",
}
"""Placeholders in a turn for parts of the item or the answer, which a rater sees beside the text."""
BLANK_LINES = re.compile(r"\n\s*\n\s*\n+")


def render_rubric(queue: RatingQueue) -> str:
    """Return the rubric's turns in order, or "" if the queue rates dimensions."""
    if queue.rubric is None:
        return ""
    variables = {**judge_prompt.build_rubric_variables(queue.rubric.content), judge_prompt.VERDICT_FORM: ""}

    def substitute(match: re.Match[str]) -> str:
        name = match.group(1)
        return variables[name] if name in variables else f"[{PLACEHOLDERS.get(name, 'a detail of the question')}]"

    turns = [prompts.VARIABLE.sub(substitute, turn["content"]).strip() for turn in queue.rubric.messages]
    return BLANK_LINES.sub("\n\n", "\n\n".join(turn for turn in turns if turn))


def list_context_parts(item: Item, queue: RatingQueue) -> list[tuple[str, str]]:
    """Return the parts of an item that the rubric shows beside its question, as (heading, text) pairs.

    As for a judge, a part is included only if a turn of the rubric uses it.
    """
    if queue.rubric is None:
        return []
    parts = [("Reference answer", "target", item.target), ("Grading scheme", "grading_scheme", item.grading_scheme)]
    if queue.text_set is not None:
        text = queue.text_set.texts.filter(item=item).values_list("text", flat=True).first()
        parts.append(("Rubric of this question", judge_prompt.ITEM_RUBRIC, text or ""))
    variables = {name for turn in queue.rubric.messages for name in prompts.find_variables(turn["content"])}
    metadata = [(name.removeprefix(prompts.META), name) for name in sorted(variables) if name.startswith(prompts.META)]
    parts += [(title, name, str(item.metadata.get(title, ""))) for title, name in metadata]
    return [(title, text) for title, name, text in parts if name in variables and text]
