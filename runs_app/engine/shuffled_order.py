"""The order in which workers claim the trials of a run, if its experiment is shuffled.

The order is that of the items by default. With a seed, it is a pseudo-random order of items and repetitions, equal on
every site. All dimensions of an item stay together, so that a provider can cache what their prompts share. The order
changes nothing about a trial or its request.
"""

from __future__ import annotations


def make_place_sql(item: str, sample_idx: str, seed: str = "%(shuffle)s::int") -> str:
    """Return the SQL of a trial's `place`: 0 if the seed is NULL.

    item, sample_idx, seed: SQL of the item's id, of the repetition, and of the experiment's seed.
    """
    return f"""CASE WHEN {seed} IS NULL THEN 0 ELSE (
        SELECT ('x' || substr(md5(concat_ws('/', {seed}, i.key, {sample_idx})), 1, 7))::bit(28)::int
        FROM datasets_app_item i WHERE i.id = {item}) END"""  # noqa: S608 - SQL of this package
