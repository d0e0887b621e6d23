"""The time to build a dataset of generated items: `python -m benchmarks.parametric_dataset [--cases 100000]`.

Every task has the same share, at its default point and two harder ones. Processor time is of this process; the server's
own follows from the wall time of an idle machine. The hash is that of the approval.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import time

from benchmarks.generators import HARDER


def build(cases: int, *, profiled: bool) -> None:

    from benchmarks import stored  # noqa: F401 - sets Django up
    from datasets_app.parametric.dataset_builder import SpaceFiles, create_parametric_dataset
    from datasets_app.parametric.spaces import resolve_space
    from datasets_app.parametric.spec import read_space

    tasks = [{"name": name, "mode": "list", "params": [{}, *points]} for name, points in HARDER.items()]
    count = -(-cases // sum(len(task["params"]) for task in tasks))
    text = json.dumps({"name": "big", "precision": {"all": {"count": count}}, "tasks": tasks})
    space = resolve_space(read_space(text))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    profile = cProfile.Profile()
    start, processor = time.perf_counter(), time.process_time()
    if profiled:
        profile.enable()
    dataset = create_parametric_dataset(space, SpaceFiles(text), slug="big", by="benchmark")
    profile.disable()
    times = (time.perf_counter() - start, time.process_time() - processor)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{dataset.item_count:,} items in {times[0]:.1f} s, processor {times[1]:.1f} s; memory grew by {growth:.0f} MB"
    )
    start = time.perf_counter()
    dataset.approve(by="benchmark", reason="measured")
    print(f"approved and hashed in {time.perf_counter() - start:.1f} s")
    if profiled:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    from benchmarks.stored import temporary_database

    with temporary_database():
        build(options.cases, profiled=options.profile)


if __name__ == "__main__":
    main()
