"""Answers of a model with a skill profile to cases of parametric tasks, in the format that their patterns parse."""

from collections.abc import Sequence

from runs_app.simulator.answer_key import KnownCase
from runs_app.simulator.request_parser import ChatRequest, strip_provider
from runs_app.simulator.responses import CHARACTERS_PER_TOKEN
from runs_app.simulator.seeded_random import draw_normal, draw_uniforms
from runs_app.simulator.skill_profiles import TaskProfile

_THOUGHTS = (
    "First I go through what is given.",
    "One part follows from the other.",
    "I check this step once more.",
    "Then I carry the result on.",
    "Nothing else changes it.",
)


def answer_case(case: KnownCase, profile: TaskProfile, targets: Sequence[str], seed: int, request: ChatRequest) -> str:
    """Return an answer with the accuracy and the length of the profile.

    targets: the targets of all cases of the task, which serve as wrong answers. Each model, request text and request
    seed has independent draws.
    """
    parts = ("case", seed, strip_provider(request.model), request.text, request.seed)
    knowledge, guess, start, _ = draw_uniforms(*parts)
    answer = case.target if knowledge < profile.skill(case.params) else _make_guess(case, targets, guess)
    final = f"Final Answer: {answer}"
    tokens = profile.draw_tokens(case.params, draw_normal("length", *parts))
    return _write_reasoning(tokens * CHARACTERS_PER_TOKEN - len(final) - 2, int(start * len(_THOUGHTS))) + final


def _make_guess(case: KnownCase, targets: Sequence[str], draw: float) -> str:
    """Return one of the choices with equal probability. A guess of free text is always wrong."""
    if case.choices:
        return case.choices[int(draw * len(case.choices))]
    others = [target for target in targets if target != case.target]
    return others[int(draw * len(others))] if others else f"not {case.target}"


def _write_reasoning(length: int, start: int) -> str:
    """Return reasoning of this many characters and a blank line, or "" if `length` is not positive."""
    if length <= 0:
        return ""
    thoughts = _THOUGHTS[start:] + _THOUGHTS[:start]
    text = " ".join(thoughts) + " "
    return (text * (length // len(text) + 1))[:length] + "\n\n"
