"""The one public record of ReasonScape's runner, reproduced from its parameters, its question and its answer.

Its cases come from a table of films that is not public, so the question is copied from the record. Everything derived
from the parameters, the question and the answer must be equal. `tests/unit/generators/test_movies.py` solves the
question.
"""

from datasets_app.generators.generator import Case
from datasets_app.generators.registry import get_generator
from datasets_app.parametric.items import GeneratedItem
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import parse_space

QUESTION = (
    "Which movie belongs with this group: 12 Years a Slave, Braveheart, Ford v Ferrari?\n\n"
    "Options:\n(A) Dark Phoenix\n(B) The Incredible Hulk\n(C) Hacksaw Ridge"
)
RECORD = {
    "task": "000_movies_choice_count-3_reference_count-4",
    "base_task": "movies",
    "key": "000_movies_choice_count-3_reference_count-4-0",
    "input": QUESTION,
    "target": "(C)",
    "response_enum": ["(A)", "(B)", "(C)"],
    "messages": [
        {
            "role": "user",
            "content": "Given a list of movies a user has watched and liked, recommend a similar film. Think step by "
            f"step, then respond with Final Answer: (A) - (Z)\n{QUESTION}",
        }
    ],
    "answer": "Given the preference for historical dramas, the most similar film to the group would be:\n\n"
    "(C) **Hacksaw Ridge**\n\nFinal Answer: (C) Hacksaw Ridge",
    "params": {"reference_count": 4, "choice_count": 3, "count": 128},
    "guess_chance": 0.3333333333333333,
    "normalized_answer": "(C) Hacksaw Ridge",
    "extracted_answer": "(C)",
    "is_valid": True,
    "is_correct": True,
}


def test_the_record_follows_from_its_parameters_question_and_answer():
    tasks = [{"name": "movies", "mode": "list", "params": [RECORD["params"]]}]
    (point,) = resolve_space(parse_space({"name": "seed", "tasks": tasks})).points
    movies = get_generator(point.base_task)
    case = Case(RECORD["input"], RECORD["target"], tuple(RECORD["response_enum"]))
    item = GeneratedItem(point, 0, case)
    reading = movies.answer.read(RECORD["answer"], case.choices)
    assert {
        "task": f"{point.index:03}_{point.slug}",
        "base_task": point.base_task,
        "key": f"{point.index:03}_{item.key}",
        "input": case.input,
        "target": case.target,
        "response_enum": list(case.choices),
        "messages": [{"role": "user", "content": f"{movies.instructions.stepwise}\n{case.input}"}],
        "answer": RECORD["answer"],
        "params": point.params | {"count": point.count},
        "guess_chance": float(case.guess_chance),
        "normalized_answer": reading.normalised,
        "extracted_answer": reading.extracted,
        "is_valid": reading.valid,
        "is_correct": movies.answer.is_correct(reading, case.target),
    } == RECORD
