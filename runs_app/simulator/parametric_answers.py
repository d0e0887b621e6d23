"""Answers of a model with a skill profile to the cases of parametric tasks, in the form that their patterns read."""

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
    """Return the answer: right with the chance of the profile, and as long as the profile draws it.

    targets: the targets of all cases of the task, from which wrong answers are taken. Each model, request and seed of a
    request has draws of its own.
    """
    drawn = ("case", seed, strip_provider(request.model), request.text, request.seed)
    knows, guess, start, _ = draw_uniforms(*drawn)
    answer = case.target if knows < profile.skill(case.params) else _make_guess(case, targets, guess)
    final = f"Final Answer: {answer}"
    tokens = profile.draw_tokens(case.params, draw_normal("length", *drawn))
    return _write_reasoning(tokens * CHARACTERS_PER_TOKEN - len(final) - 2, int(start * len(_THOUGHTS))) + final


def _make_guess(case: KnownCase, targets: Sequence[str], draw: float) -> str:
    """Return one of the choices, each with the same chance. Free text is never right by guessing."""
    if case.choices:
        return case.choices[int(draw * len(case.choices))]
    others = [target for target in targets if target != case.target]
    return others[int(draw * len(others))] if others else f"not {case.target}"


def _write_reasoning(length: int, start: int) -> str:
    """Return reasoning of this many characters, with the blank line behind it; "" if there is no room."""
    if length <= 0:
        return ""
    turned = _THOUGHTS[start:] + _THOUGHTS[:start]
    text = " ".join(turned) + " "
    return (text * (length // len(text) + 1))[:length] + "\n\n"
