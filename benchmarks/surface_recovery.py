"""The coverage and the cost of the intervals of a surface, for simulated models with skill profiles.

    python -m benchmarks.surface_recovery [--repeats 20]

Two models answer three tasks at 40 points: with a fixed number of cases, and in rounds of 32 until ±0.09 or 512 cases.
The answers come from the simulated provider's own model, and are read by the tasks' answer patterns.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from datasets_app.generators.registry import get_generator
from datasets_app.parametric.items import draw_cases
from datasets_app.parametric.spaces import DifficultyPoint, resolve_space
from datasets_app.parametric.spec import read_space
from runs_app.simulator.known_answers import AnswerKey
from runs_app.simulator.model_behaviour import Answerer
from runs_app.simulator.request_parser import read_chat
from runs_app.simulator.responses import Reply
from runs_app.simulator.skill_profiles import parse_profiles
from runs_app.stopping.rules import StoppingRule, Tally

SPACE = """
name: recovery
precision: {all: {count: 32}}
tasks:
  - name: arithmetic
    params: {length: [8, 16, 24, 32, 40], max_depth: [0, 2, 4, 6]}
  - name: boolean
    params: {length: [6, 12, 18, 24], max_depth: [1, 3]}
  - name: shuffle
    params: {length: [3, 5, 7], max_depth: [2, 6, 10, 14]}
"""
PROFILES = parse_profiles(
    {
        "sharp": {
            "*": {"start": 5, "falls": {"length": 0.08, "max_depth": 0.3}, "tokens": 40, "grows": {"length": 0.04}}
        },
        "dull": {"*": {"start": 2, "falls": {"length": 0.06, "max_depth": 0.2}, "tokens": 20}},
    }
)
MAX_TOKENS = 160
RULES = {
    "fixed, 128 cases": (128, StoppingRule(maximum=128)),
    "until ±0.09": (32, StoppingRule(maximum=512, targetci=0.09, abortht=0.6)),
}


Answer = tuple[bool, bool, float]
"""Whether an answer is right, whether it is truncated, and the chance to guess it."""


def answer_point(point: DifficultyPoint, model: str, seed: int) -> Iterator[Answer]:
    """Yield (right, truncated, guess chance) for each case of a point."""
    rule, key, cases = get_generator(point.base_task).answer, AnswerKey(), []
    for case in islice(draw_cases(point.base_task, point.params, seed=seed), 512):
        key.add({"text": case.input, "target": case.target, "task": point.base_task, "params": point.params,
                 "choices": list(case.choices or ())})  # fmt: skip
        cases.append(case)
    models = Answerer(seed, {}, key, profiles=PROFILES)
    for number, case in enumerate(cases):
        body = {"model": model, "messages": [{"role": "user", "content": case.input}], "max_tokens": MAX_TOKENS}
        request = read_chat(json.dumps(body | {"seed": number}).encode())
        reply = Reply(models.answer(request).content).truncate(MAX_TOKENS)
        right = rule.is_correct(rule.read(reply.content or "", case.choices), case.target)
        yield right, reply.finish_reason == "length", float(case.guess_chance)


def count_answers(answers: Sequence[Answer]) -> Tally:
    outcomes = [(right, guess) for right, cut, guess in answers if not cut]
    return Tally(
        sum(right for right, _ in outcomes),
        len(outcomes),
        len(answers) - len(outcomes),
        sum(guess for _, guess in outcomes),
    )


def run_rule(answers: Sequence[Answer], per_round: int, rule: StoppingRule) -> Tally:
    """Return the tally at which the rule stops."""
    for cases in range(per_round, rule.maximum + 1, per_round):
        tally = count_answers(answers[:cases])
        if rule.decide(tally, n_planned=cases).kind != "more":
            break
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="spaces with other seeds")
    options = parser.parse_args()
    points = resolve_space(read_space(SPACE)).points
    hits, counts, cases = (dict.fromkeys(RULES, 0) for _ in range(3))
    start = time.process_time()
    for seed in range(options.repeats):
        for model in PROFILES:
            for point in points:
                answers = list(answer_point(point, model, seed))
                truth = PROFILES[model].skill(point.base_task, point.params)
                assert truth is not None
                for name, (per_round, rule) in RULES.items():
                    tally = run_rule(answers, per_round, rule)
                    interval = tally.interval() if tally.total else None
                    cases[name] += tally.cases
                    if interval and interval.low is not None and interval.high is not None:
                        hits[name] += interval.low <= truth <= interval.high
                        counts[name] += 1
    print(f"{len(points)} points, {len(PROFILES)} models, {options.repeats} spaces")
    for name in RULES:
        share = 100 * hits[name] / counts[name]
        print(f"{name:<18} {hits[name]:>5} of {counts[name]:>5} intervals cover ({share:.1f} %), {cases[name]:,} cases")
    print(f"processor time {time.process_time() - start:.1f} s")


if __name__ == "__main__":
    main()
