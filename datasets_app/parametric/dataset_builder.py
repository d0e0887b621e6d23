"""Datasets of generated items: creation of a draft from a space of difficulty.

More cases per point, or more points, under the same name make the next version. Items of both versions
have the same content and therefore the same prompts, so the response cache answers them at no cost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db import connection, transaction

from datasets_app.importing.dataset_writer import create_draft
from datasets_app.models import Dataset, ParametricSpace
from datasets_app.models.datasets import CurationError
from datasets_app.parametric.items import GeneratedItem, count_cases, generate_point, make_prompt_parts, read_points
from datasets_app.parametric.spaces import DifficultyPoint, Space
from datasets_app.parametric.spec import SpaceError
from evalsite.lib.history import Actor

BATCH_SIZE = 5000
MAX_CASES_IN_MEMORY = 5000  # Of one point. A larger point is drawn twice, once for its examples.
COLUMNS = (
    "dataset_id", "key", "position", "input", "target", "choices", "category", "metadata", "grading_scheme", "note",
    "excluded",
)  # fmt: skip
COPY = f"COPY datasets_app_item ({', '.join(COLUMNS)}) FROM STDIN"
MAX_KEY_LENGTH = 200
STRATEGY = "parametric"
Watch = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SpaceFiles:
    """The text and name of a space file, and the texts of the task files that it references."""

    text: str
    name: str = ""
    task_files: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DatasetExtension:
    """The difference between a space and the newest version of a dataset, in numbers of items."""

    previous: Dataset
    common: int
    added: int
    dropped: int

    def __str__(self) -> str:
        dropped = f", {self.dropped:,} of its items left out" if self.dropped else ""
        return f"{self.common:,} items as in {self.previous}, {self.added:,} new{dropped}"


@transaction.atomic
def create_parametric_dataset(
    space: Space, files: SpaceFiles, *, slug: str, by: Actor, watch: Watch | None = None, **about: Any
) -> Dataset:
    """Create a draft with every case of a space: version 1 of a new name, or the next version of an existing name.

    watch: called with the number of items saved so far. Raise CurationError, and save nothing, if a field is
    invalid or the newest version of the name has the same items.
    """
    check_keys(space)
    extension = compare_with_newest(space, slug)
    if extension and not extension.added + extension.dropped:
        raise CurationError(f"name: {extension.previous} has all of these {extension.common:,} items and no others")
    digest = space.definition_hash()
    dataset = create_draft(
        slug,
        by=by,
        source_name=files.name[-255:],
        source_sha256=hashlib.sha256(files.text.encode()).hexdigest(),
        parent=extension.previous if extension else None,
        recipe=_make_recipe(space, digest, extension),
        **about,
    )
    ParametricSpace.objects.create(
        dataset=dataset,
        file=files.text,
        task_files=dict(files.task_files or {}),
        definition=json.dumps(space.definition(), sort_keys=True),
        definition_hash=digest,
    )
    with dataset.change_draft():
        # COPY in batches bounds the memory and reports the progress.
        saved, rows = 0, _iterate_rows(dataset, space.points, seed=space.seed)
        while batch := list(islice(rows, BATCH_SIZE)):
            with connection.cursor() as cursor, cursor.copy(COPY) as copy:
                for row in batch:
                    copy.write_row(row)
            saved += len(batch)
            if watch:
                watch(saved)
        dataset.recipe["n"] = saved
        dataset.save(update_fields=["recipe"])
        summary = f"generated {dataset.recipe['n']:,} items at {len(space.points):,} points"
        dataset.add_history_line("items", f"{summary}: {extension}" if extension else summary, by=by)
    return dataset


def check_keys(space: Space) -> None:
    """Raise CurationError if a point's parameters give an item key that is too long."""
    for point in space.points:
        if len(point.slug) + len(str(point.max_cases)) + 1 > MAX_KEY_LENGTH:
            raise CurationError(f"{point.task}: the key {point.slug[:80]}... has more than {MAX_KEY_LENGTH} characters")


def compare_with_newest(space: Space, slug: str) -> DatasetExtension | None:
    """Return the difference from the newest generated version of this name, or None without one."""
    previous = Dataset.objects.named(slug).filter(parametric_space__isnull=False).first()
    if previous is None:
        return None
    stored = previous.parametric_space.read_definition()
    old, new = _count_items(stored), _count_items(space.definition())
    common = sum(min(count, new[key]) for key, count in old.items() if key in new)
    return DatasetExtension(previous, common, sum(new.values()) - common, sum(old.values()) - common)


def _iterate_rows(dataset: Dataset, points: Iterable[DifficultyPoint], *, seed: int) -> Iterator[tuple[Any, ...]]:
    """Yield the values of COLUMNS. The shared texts of a point's cases are serialised once."""
    position = 0
    for point in points:
        cases: Iterable[GeneratedItem] = generate_point(point, seed=seed)
        inputs = None
        if point.max_cases <= MAX_CASES_IN_MEMORY:  # Only a large point is drawn twice.
            cases = list(cases)
            inputs = {item.case.input for item in cases}
        ending = f", {json.dumps(make_prompt_parts(point, seed=seed, inputs=inputs))[1:]}"
        for generated in cases:
            case = generated.case
            metadata = json.dumps(generated.metadata())[:-1] + ending
            choices = json.dumps(case.choices or ())
            row = (
                dataset.pk,
                generated.key,
                position,
                case.input,
                case.target,
                choices,
                generated.point.task,
                metadata,
            )
            yield (*row, "", "", False)
            position += 1


def _count_items(definition: Mapping[str, Any]) -> dict[tuple[str, ...], int]:
    """Return the number of cases by task definition, name in the file, seed and parameters.

    If an installed task differs, its different cases cannot be counted; then the number is the maximum.
    """
    tasks = {content["task"]: json.dumps(content, sort_keys=True) for content in definition["generators"]}
    seed, points = definition["seed"], definition["points"]
    try:
        counts = count_cases(read_points(definition), seed)
    except SpaceError:
        counts = [point["stopping"].get("maximum", point["count"]) for point in points]
    return {
        (tasks[point["base_task"]], point["task"], str(seed), json.dumps(point["params"], sort_keys=True)): cases
        for point, cases in zip(points, counts, strict=True)
    }


def _make_recipe(space: Space, digest: str, extension: DatasetExtension | None) -> dict[str, Any]:
    return {
        "strategy": STRATEGY,
        "n": space.max_cases,
        "seed": space.seed,
        "space": space.spec.name,
        "points": len(space.points),
        "precision": space.precision,
        "degree": space.degree,
        "density": space.density,
        "stopping_rules": any(name in point.stopping for point in space.points for name in ("targetci", "abortht")),
        "definition_hash": digest,
    } | ({"from": str(extension.previous)} if extension else {})
