"""Shipped designs: approved prompts and samplers, which users may edit as new versions.

General prompts use only variables that every dataset can fill. The variables of the prompts for parametric tasks are
metadata of generated items (`datasets_app/parametric/items.py`).
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from runs_app.llm.prompts import Turn
from runs_app.models import Prompt, Sampler
from runs_app.models.designs import Versioned

EXAMPLES = (1, 2, 3)
ACTOR = "shipped with the site"
REASON = "Shipped for parametric tasks"
GENERAL_REASON = "Shipped for any dataset"


def _build_turn(role: str, content: str) -> Turn:
    return Turn(role=role, content=content)


def _build_shots(*parts: str) -> list[Turn]:
    """Return the turns of the examples. Each assistant turn consists of these parts."""
    turns = []
    for number in EXAMPLES:
        answer = "\n".join(f"{{{{meta.example_{number}_{part}}}}}" for part in parts)
        turns += [_build_turn("user", f"{{{{meta.example_{number}_input}}}}"), _build_turn("assistant", answer)]
    return turns


def _build_unified_text() -> str:
    """Return a single text with instruction, examples and question."""
    examples = [
        f"Question:\n{{{{meta.example_{number}_input}}}}\n\n"
        f"Reasoning:\n{{{{meta.example_{number}_reasoning}}}}\n\n{{{{meta.example_{number}_answer}}}}"
        for number in EXAMPLES
    ]
    return "\n\n---\n\n".join(["{{meta.instruction_worked}}", *examples, "Question:\n{{input}}"])


QUESTION = _build_turn("user", "{{input}}")
NOSYS = "{{meta.instruction}}\n\n"
PROMPTS: dict[str, list[Turn]] = {
    "zeroshot": [_build_turn("system", "{{meta.instruction}}"), QUESTION],
    "zeroshot-nosys": [_build_turn("user", NOSYS + "{{input}}")],
    "zerocot-nosys": [_build_turn("user", "{{meta.instruction_stepwise}}\n\n{{input}}")],
    "multishot": [_build_turn("system", "{{meta.instruction}}"), *_build_shots("answer"), QUESTION],
    "multishot-nosys": [
        _build_turn("user", NOSYS + "{{meta.example_1_input}}"),
        *_build_shots("answer")[1:],
        QUESTION,
    ],
    "multishot-cot": [
        _build_turn("system", "{{meta.instruction_worked}}"),
        *_build_shots("reasoning", "answer"),
        QUESTION,
    ],
    "unified-cot": [_build_turn("user", _build_unified_text())],
}
ANSWER_LINE = 'End with a line "ANSWER: " and then only your answer.'
GENERAL_PROMPTS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [_build_turn("user", "{{input}}\n{{choices}}")]},
    "answer-line": {"messages": [_build_turn("user", f"{{{{input}}}}\n{{{{choices}}}}\n\n{ANSWER_LINE}")]},
    "multiple-choice": {
        "messages": [
            _build_turn(
                "user",
                "{{input}}\n\n{{choices}}\n\n"
                'Which choice is right? End with a line "ANSWER: " and then only the letter of the choice.',
            )
        ]
    },
    "rate-image": {
        "messages": [
            _build_turn(
                "user",
                "{{image}}\n\n{{dimension_instructions}}\n\n"
                "Rate this image from {{scale_min}} to {{scale_max}}. {{scale_labels}}",
            )
        ],
        "answer_format": "rating",
    },
}
GENERAL_SAMPLERS: dict[str, dict[str, Any]] = {
    "provider-default": {},
    "temperature-0": {"temperature": 0.0},
    "up-to-2k": {"max_tokens": 2048},
}
SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy-2k": {"temperature": 0.0, "max_tokens": 2048},
    "greedy-4k": {"temperature": 0.0, "max_tokens": 4096},
    "greedy-8k": {"temperature": 0.0, "max_tokens": 8192},
    "greedy-max": {"temperature": 0.0},
}


@transaction.atomic
def create_shipped_designs() -> list[str]:
    """Create and approve the shipped prompts and samplers whose names are free. Return their references.

    Names that have any version are skipped, because the users may have edited or archived them. Versions that came with
    an imported study do not count.
    """
    rows: list[Versioned] = [Prompt(name=name, **content) for name, content in GENERAL_PROMPTS.items()]
    rows += [Prompt(name=name, messages=turns) for name, turns in PROMPTS.items()]
    rows += [Sampler(name=name, **settings) for name, settings in (GENERAL_SAMPLERS | SAMPLERS).items()]
    created = []
    for row in rows:
        kind: Any = type(row)
        if kind.objects.filter(name=row.name).exclude(status=kind.Status.IMPORTED).exists():
            continue
        row.version = kind.get_next_version(row.name)
        row.full_clean()
        row.save()
        is_general = row.name in GENERAL_PROMPTS or row.name in GENERAL_SAMPLERS
        row.approve(by=ACTOR, reason=GENERAL_REASON if is_general else REASON)
        created.append(str(row))
    return created
