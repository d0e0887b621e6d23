"""The option `--condition`, which selects conditions of an experiment by id or prefix."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Sequence

from evalsite.lib.ops.commands import refuse_input


def add_condition_option(parser: ArgumentParser, help_text: str) -> None:
    parser.add_argument(
        "--condition", action="append", default=[], metavar="ID", help=f"{help_text}: an id or its prefix; repeatable"
    )


def match_condition_ids(condition_ids: Collection[str], prefixes: Sequence[str]) -> list[str]:
    """Return the ids that match the prefixes, each once.

    Exit with code 2 and the valid ids if a prefix matches none or several.
    """
    return list(dict.fromkeys(_match_condition_id(condition_ids, prefix) for prefix in prefixes))


def _match_condition_id(condition_ids: Collection[str], prefix: str) -> str:
    if prefix in condition_ids:
        return prefix
    matches = [condition_id for condition_id in condition_ids if prefix and condition_id.startswith(prefix)]
    if len(matches) != 1:
        problem = f"{prefix} matches several conditions" if matches else f"there is no condition {prefix}"
        valid = "".join(f"\n  {condition_id}" for condition_id in sorted(matches or condition_ids)) or " none yet"
        refuse_input(f"--condition: {problem}; valid ids:{valid}")
    return matches[0]
