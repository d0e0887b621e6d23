"""The texts that a prompt needs beside a case's input: the task's instructions, and worked examples. Pure.

They are metadata of each item, so that prompts name them: `{{meta.instruction}}`, `{{meta.example_1_input}}`. The
examples of a point come from another seed and equal none of its cases. More cases at a point leave them as they are,
unless a new case equals an example: another example then takes its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from datasets_app.generators.base import Case, final_line
from datasets_app.generators.registry import get_generator
from datasets_app.parametric.items import draw_examples, generate_point
from datasets_app.parametric.spaces import Point

EXAMPLES = 3
INSTRUCTIONS = ("instruction", "instruction_stepwise", "instruction_worked")


class InputDigests:
    """The inputs of many cases, 16 bytes each: a point may have 100,000."""

    def __init__(self, inputs: Iterable[str]) -> None:
        self._digests = {_digest(text) for text in inputs}

    def __contains__(self, text: object) -> bool:
        return _digest(str(text)) in self._digests


def prompt_parts(point: Point, *, seed: int) -> dict[str, str]:
    """Return the metadata for prompts that all cases of a point share."""
    generator = get_generator(point.base_task)
    words = generator.instructions
    parts = dict(zip(INSTRUCTIONS, (words.direct, words.stepwise, words.worked), strict=True))
    for number, case in enumerate(_choose_examples(point, seed), 1):
        parts[f"example_{number}_input"] = case.input
        parts[f"example_{number}_reasoning"] = generator.explain(case)
        parts[f"example_{number}_answer"] = final_line(case.target)
    return parts


def _choose_examples(point: Point, seed: int) -> list[Case]:
    """Return EXAMPLES cases of the point. If it has too few other cases, the task's defaults give the rest."""
    inputs = InputDigests(item.case.input for item in generate_point(point, seed=seed))
    found = draw_examples(point.base_task, point.params, EXAMPLES, avoid=inputs)
    if len(found) < EXAMPLES:
        chosen = {case.input for case in found}
        spare = draw_examples(point.base_task, {}, 2 * EXAMPLES, avoid=inputs)
        found += [case for case in spare if case.input not in chosen]
    return found[:EXAMPLES]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
