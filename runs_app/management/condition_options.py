"""The option `--condition`, which selects conditions of an experiment by id or by the beginning of an id."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Sequence

from evalsite.lib.ops.commands import refuse_input


def add_condition_option(parser: ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--condition", action="append", default=[], metavar="ID", help=f"{what}: an id or its beginning; repeatable"
    )


def match_condition_ids(condition_ids: Collection[str], wanted: Sequence[str]) -> list[str]:
    """Return the matching known ids, each once. Exit with code 2 and the valid ids if a value matches none
    or several."""
    return list(dict.fromkeys(_match_condition_id(condition_ids, one) for one in wanted))


def _match_condition_id(condition_ids: Collection[str], wanted: str) -> str:
    if wanted in condition_ids:
        return wanted
    found = [one for one in condition_ids if wanted and one.startswith(wanted)]
    if len(found) != 1:
        fault = f"{wanted} is the beginning of several conditions" if found else f"there is no condition {wanted}"
        valid = "".join(f"\n  {one}" for one in sorted(found or condition_ids)) or " none yet"
        refuse_input(f"--condition: {fault}; valid are:{valid}")
    return found[0]
