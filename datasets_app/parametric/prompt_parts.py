"""The texts that a prompt needs beside a case's input: the task's instructions, and worked examples. Pure.

They are metadata of each item, so that prompts name them: `{{meta.instruction}}`, `{{meta.example_1_input}}`. The
examples have the point's formats and the task's default numbers, so that their difficulty is the same at all points.
They come from another seed and equal none of the point's cases. More cases at a point leave them as they are, unless a
new case equals an example: another example then takes its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable
from typing import Any

from datasets_app.generators.base import Case, format_final_line
from datasets_app.generators.registry import get_generator
from datasets_app.parametric.items import draw_examples, generate_point
from datasets_app.parametric.spaces import Point

EXAMPLES = 3
INSTRUCTIONS = ("instruction", "instruction_stepwise", "instruction_worked")


class InputDigests:
    """The inputs of many cases, 16 bytes each: a point may have 100,000."""

    def __init__(self, inputs: Iterable[str]) -> None:
        self._digests = {_hash_input(text) for text in inputs}

    def __contains__(self, text: object) -> bool:
        return _hash_input(str(text)) in self._digests


def make_prompt_parts(point: Point, *, seed: int, inputs: Container[str] | None = None) -> dict[str, str]:
    """Return the metadata for prompts that all cases of a point share.

    inputs: the inputs of all cases of the point; without them, the cases are drawn again.
    """
    generator = get_generator(point.base_task)
    words = generator.instructions
    parts = dict(zip(INSTRUCTIONS, (words.direct, words.stepwise, words.worked), strict=True))
    for number, case in enumerate(_choose_examples(point, seed, inputs), 1):
        parts[f"example_{number}_input"] = case.input
        parts[f"example_{number}_reasoning"] = generator.explain(case)
        parts[f"example_{number}_answer"] = format_final_line(case.target)
    return parts


def _choose_examples(point: Point, seed: int, inputs: Container[str] | None) -> list[Case]:
    """Return EXAMPLES cases in the point's formats. If too few differ from its cases, the task's defaults give more."""
    if inputs is None:
        inputs = InputDigests(item.case.input for item in generate_point(point, seed=seed))
    examples: dict[str, Case] = {}
    for params in (_select_options(point), {}):
        if len(examples) < EXAMPLES:
            cases = draw_examples(point.base_task, params, 2 * EXAMPLES, avoid=inputs)
            examples |= {case.input: case for case in cases if case.input not in examples}
    return list(examples.values())[:EXAMPLES]


def _select_options(point: Point) -> dict[str, Any]:
    """Return the point's parameters that are options, not numbers. The numbers of examples are the task's defaults."""
    kinds = {info.name: info.kind for info in get_generator(point.base_task).describe_params()}
    return {name: value for name, value in point.params.items() if kinds[name] in ("choice", "switch")}


def _hash_input(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
