"""The time to generate cases of the parametric tasks, and the memory that the stream takes.

    python -m benchmarks.generators [--cases 100000] [--hard]

Every task gets the same share of the cases. Without --hard it has its default parameters and two harder points; with
--hard every number has its largest value.
"""

import argparse
import json
import resource
import time
from collections.abc import Sequence
from typing import Any

from datasets_app.generators.generator import Generator
from datasets_app.generators.registry import load_generators
from datasets_app.parametric.items import generate_point
from datasets_app.parametric.spaces import DifficultyPoint

# Two points beyond the defaults, about as hard as published spaces go.
HARDER: dict[str, list[dict[str, Any]]] = {
    "arithmetic": [{"length": 24, "max_depth": 4}, {"length": 48, "max_depth": 6, "prob_dewhitespace": 0.5}],
    "boolean": [{"length": 24, "max_depth": 4}, {"length": 48, "max_depth": 6, "format": "ON_OFF"}],
    "brackets": [{"length": 40, "max_depth": 8}, {"length": 100, "max_depth": 16, "kinds": 4}],
    "cars": [{"entities": 6, "moves": 12, "complexity": 4}, {"entities": 10, "moves": 30, "confounders": 20}],
    "dates": [{"tier": 2, "format": "US"}, {"tier": 4, "format": "LONG"}],
    "letters": [{"words": 12, "target_letters": 2}, {"words": 30, "target_letters": 3, "confounders": 30}],
    "movies": [{"reference_count": 6, "choice_count": 6}, {"reference_count": 3, "choice_count": 10, "hints": True}],
    "objects": [{"target_items": 8, "distractor_count": 8}, {"target_items": 12, "distractor_count": 24}],
    "sequence": [{"base": "fibonacci", "interference": 2, "length": 12}, {"interference": 4, "length": 30}],
    "shapes": [{"rotation": 90.0, "offset": 100.0}, {"kind": "octagon", "rotation": 180.0, "scale": 10.0}],
    "shuffle": [{"length": 6, "max_depth": 10}, {"length": 10, "max_depth": 30, "confounding_count": 20}],
    "sort": [{"length": 20, "run_length": 4}, {"length": 60, "run_length": 10}],
    "tables": [{"rows": 20, "columns": 5, "operation": "sum"}, {"rows": 60, "columns": 8, "format": "json"}],
}


def list_maximum_values(generator: Generator) -> dict[str, Any]:
    """Return the largest value of every number among a task's parameters."""
    numbers = {"integer": int, "number": float}
    return {
        info.name: numbers[info.kind](info.maximum)
        for info in generator.describe_params()
        if info.kind in numbers and info.maximum is not None
    }


def measure(name: str, points: Sequence[dict[str, Any]], cases: int) -> tuple[float, int]:
    """Return the seconds and the characters for this many cases, spread over the points."""
    start, size = time.perf_counter(), 0
    for at, params in enumerate(points):
        count = cases * (at + 1) // len(points) - cases * at // len(points)
        point = DifficultyPoint(at, name, name, params, count, 0, "normal")
        for item in generate_point(point):
            size += len(item.key) + len(item.case.input) + len(item.case.target) + len(json.dumps(item.metadata()))
    return time.perf_counter() - start, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="cases of all tasks together")
    parser.add_argument("--hard", action="store_true", help="the largest value of every number")
    options = parser.parse_args()
    generators = load_generators()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total, n_cases = 0.0, 0
    processor = time.process_time()
    for at, (name, generator) in enumerate(generators.items()):
        cases = options.cases * (at + 1) // len(generators) - options.cases * at // len(generators)
        points: list[dict[str, Any]] = [list_maximum_values(generator)] if options.hard else [{}, *HARDER[name]]
        seconds, size = measure(name, points, cases)
        total, n_cases = total + seconds, n_cases + cases
        cost = f"{1e6 * seconds / cases:>6.0f} us and {size / cases:>7.0f} B a case"
        print(f"{name:<12} {cases:>7,} cases {seconds:>7.2f} s {cost}")
    processor_s = time.process_time() - processor
    growth_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{'all':<12} {n_cases:>7,} cases {total:>7.2f} s")
    print(f"processor time {processor_s:.2f} s; memory grew by {growth_mb:.0f} MB")


if __name__ == "__main__":
    main()
