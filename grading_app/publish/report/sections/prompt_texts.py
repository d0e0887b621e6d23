"""Prompts, dimensions and rubrics in full, as the models read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grading_app.models import Rubric
from grading_app.publish.report.document import Block, Code, Heading, Paragraph, Span
from grading_app.publish.report.report_source import ReportSource


def write_blocks(source: ReportSource) -> list[Block | None]:
    return [*_write_prompts(source), *_write_dimensions(source), *_write_rubrics(source)]


def _write_prompts(source: ReportSource) -> Iterator[Block]:
    """Yield each prompt once, as the conditions froze it."""
    prompts: dict[tuple[str, str], Any] = {}
    for condition in source.generation_conditions:
        if condition.prompt is not None:
            prompts.setdefault((str(condition.prompt), condition.prompt.content_hash), condition.content["prompt"])
    for (name, content_hash), content in prompts.items():
        yield Heading(f"Prompt {name}")
        yield Paragraph([Span(f"SHA-256 {content_hash}. Answer format: {content['answer_format']}.")], "note")
        yield from _write_turns(content["messages"])


def _write_turns(messages: list[dict[str, Any]]) -> Iterator[Block]:
    for turn in messages:
        yield Code(_read_text(turn.get("content")), f"{turn.get('role', '')} message")


def _read_text(content: Any) -> str:
    """Return the text of a message; parts that are images appear as such."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part.get("text", "[image]")) if isinstance(part, dict) else str(part) for part in parts)


def _write_dimensions(source: ReportSource) -> Iterator[Block]:
    for dimension in source.experiment.dimensions.order_by("pk"):
        yield Heading(f"Instructions of the dimension {dimension}")
        yield Code(dimension.instructions, f"SHA-256 {dimension.content_hash}")


def _write_rubrics(source: ReportSource) -> Iterator[Block]:
    rubrics: dict[int, Rubric] = {grader.rubric.pk: grader.rubric for grader in source.graders if grader.rubric}
    for rubric in rubrics.values():
        yield Heading(f"Rubric {rubric}")
        yield Paragraph([Span(f"SHA-256 {rubric.content_hash}. {rubric.get_kind_display()}.")], "note")
        yield from _write_turns(rubric.messages)
