"""The texts that a prompt needs besides a case's input: instructions and worked examples. Pure.

Each item stores them as metadata, so that prompts can use them: `{{meta.instruction}}`, `{{meta.example_1_input}}`. The
examples have the point's formats and the task's default numbers, so that their difficulty is the same at all points.
They come from another seed and differ from all cases of the point. More cases at a point do not change the examples,
unless a new case equals an example. Another example then replaces it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable

from datasets_app.generators.generator import Case, format_final_line
from datasets_app.generators.registry import get_generator
from datasets_app.parametric.items import draw_examples, generate_point
from datasets_app.parametric.spaces import DifficultyPoint

EXAMPLE_COUNT = 3
INSTRUCTION_KEYS = ("instruction", "instruction_stepwise", "instruction_worked")


class InputDigests:
    """A set of inputs, stored as 16-byte digests, because a point may have 100,000 cases."""

    def __init__(self, inputs: Iterable[str]) -> None:
        self._digests = {_hash_input(text) for text in inputs}

    def __contains__(self, text: object) -> bool:
        return _hash_input(str(text)) in self._digests


def make_prompt_parts(point: DifficultyPoint, *, seed: int, inputs: Container[str] | None = None) -> dict[str, str]:
    """Return the metadata for prompts, shared by all cases of a point.

    inputs: the inputs of all cases of the point; without them, the cases are drawn again.
    """
    generator = get_generator(point.base_task)
    instructions = generator.instructions_at(generator.read_params(point.params))
    parts = dict(zip(INSTRUCTION_KEYS, (instructions.direct, instructions.stepwise, instructions.worked), strict=True))
    for number, case in enumerate(_choose_examples(point, seed, inputs), 1):
        parts[f"example_{number}_input"] = case.input
        parts[f"example_{number}_reasoning"] = generator.explain(case)
        parts[f"example_{number}_answer"] = format_final_line(case.target)
    return parts


def _choose_examples(point: DifficultyPoint, seed: int, inputs: Container[str] | None) -> list[Case]:
    """Return EXAMPLE_COUNT cases in the point's formats, or in the task's default formats if too few are new."""
    if inputs is None:
        inputs = InputDigests(item.case.input for item in generate_point(point, seed=seed))
    examples: dict[str, Case] = {}
    # The point's parameters without numbers. Examples use the task's default numbers.
    kinds = {info.name: info.kind for info in get_generator(point.base_task).describe_params()}
    options = {name: value for name, value in point.params.items() if kinds[name] in ("choice", "switch")}
    for params in (options, {}):
        if len(examples) < EXAMPLE_COUNT:
            cases = draw_examples(point.base_task, params, 2 * EXAMPLE_COUNT, avoid=inputs, version=point.version)
            examples |= {case.input: case for case in cases if case.input not in examples}
    return list(examples.values())[:EXAMPLE_COUNT]


def _hash_input(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
