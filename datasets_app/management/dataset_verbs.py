"""The base of the command `dataset`, and its larger verbs `parametric` and `download`.

`parametric` turns a space of difficulty from a file into points, cases and a draft. `download` imports a split of a
dataset on the Hugging Face hub as a draft, pinned to a commit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from datasets_app.importing import FileError, parse_mapping
from datasets_app.importing.dataset_writer import create_dataset
from datasets_app.importing.hub_dataset import download_split
from datasets_app.importing.limited_reader import read_upload
from datasets_app.importing.records import ReadingReport
from datasets_app.models import Dataset
from datasets_app.models.datasets import ABOUT, CurationError
from datasets_app.parametric.dataset_builder import SpaceFiles, compare_with_newest, create_parametric_dataset
from datasets_app.parametric.items import describe_gaps
from datasets_app.parametric.manifolds import DENSITIES
from datasets_app.parametric.spaces import SEED, Space, resolve_space
from datasets_app.parametric.spec import SpaceError, find_task_files, read_space
from evalsite.lib.history import Actor, TransitionError
from evalsite.lib.ops.commands import VerbCommand, add_list_option, refuse_input, resolve_actor


class DatasetCommand(VerbCommand):
    """A command whose changes have the author `by`."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (CurationError, TransitionError, FileError, SpaceError)
    by: Actor

    def handle(self, *args: Any, **options: Any) -> None:
        self.by = resolve_actor(options.get("user", ""))
        super().handle(*args, **options)

    def print_remarks(self, report: ReadingReport, name: str) -> None:
        """Print warnings, then errors. If there are errors, end the command with exit code 2; nothing is saved."""
        for remark in report.warnings:
            self.stderr.write(f"warning: {remark}", self.style.WARNING)
        if not report.error_total:
            return
        for remark in report.errors:
            self.stderr.write(f"error: {remark}", self.style.ERROR)
        errors = f"{report.error_total} error{'' if report.error_total == 1 else 's'}"
        more = report.error_total - len(report.errors)
        omitted = f"; {more} more are not shown" if more else ""
        refuse_input(f"{name}: {errors}{omitted}; nothing was saved")

    def print_summary(self, dataset: Dataset) -> None:
        excluded = dataset.item_count - dataset.active_count
        self.write(f"{dataset} ({dataset.status}): {dataset.active_count} active items, {excluded} excluded")
        for category, count in dataset.count_active_by_category().items():
            self.write(f"  {category or '(no category)'}: {count}")
        if dataset.content_hash:
            holds = "holds" if dataset.hash_items() == dataset.content_hash else "DOES NOT HOLD"
            self.write(f"  content hash {dataset.content_hash} {holds}")


MAX_BYTES = 5_000_000


def add_parametric_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "parametric", help="generate a draft, or the next version of a name, from parametric tasks"
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--name", required=True, metavar="SLUG")
    parser.add_argument("--degree", type=int, default=0, help="degree of tasks that set none; default: 0")
    parser.add_argument("--density", choices=DENSITIES, default="normal", help="density of tasks that set none")
    parser.add_argument("--precision", metavar="NAME", help="default: the file's first precision block")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--dry-run", action="store_true", help="print points and cases, and save nothing")
    for field in ABOUT:
        parser.add_argument(f"--{field}", default="", metavar="TEXT")
    parser = verbs.add_parser("answers", help="print the right answers as JSON lines, for simulate_provider --answers")
    parser.add_argument("dataset", metavar="SLUG@V")


class ParametricVerb(DatasetCommand):
    """The command with the verbs `parametric` and `answers`."""

    def do_answers(self, dataset: str, **options: Any) -> None:
        source = Dataset.objects.named(dataset).first()
        if source is None:
            raise CurationError(f"there is no dataset {dataset!r}; `dataset list` lists them")
        for answer in source.iterate_answer_key():
            self.write_file(json.dumps(answer))

    def do_parametric(self, file: Path, name: str, **options: Any) -> None:
        try:
            files = _read_files(file)
            space = resolve_space(
                read_space(files.text, files.task_files),
                precision=options["precision"],
                degree=options["degree"],
                density=options["density"],
                seed=options["seed"],
            )
        except SpaceError as error:
            for problem in error.problems:
                self.stderr.write(f"error: {problem}", self.style.ERROR)
            count = f"{len(error.problems)} error{'' if len(error.problems) == 1 else 's'}"
            raise SpaceError([f"{file.name}: {count}; nothing was saved"]) from None
        for line in describe_space(space):
            self.write(line)
        if options["dry_run"]:
            extension = compare_with_newest(space, name)
            self.write(f"{f'{extension}; ' if extension else ''}nothing was saved")
            return
        about = {field: options[field] for field in ABOUT}
        dataset = create_parametric_dataset(space, files, slug=name, by=self.by, **about)
        self.print_summary(dataset)
        self.write(f"It is a draft. Freeze it with: dataset approve {dataset} --reason TEXT")


def describe_space(space: Space) -> list[str]:
    """Return lines with the points and cases of each task, and of all."""
    settings = [f"precision {space.precision}"] if space.precision else []
    settings += [f"degree {space.degree}", f"density {space.density}", f"seed {space.seed}"]
    rows = []  # A task, its points, its cases in the first round, and all that are built.
    for task, n_points in space.points_by_task.items():
        points = [point for point in space.points if point.task == task]
        rows.append((task, n_points, sum(point.count for point in points), sum(point.max_cases for point in points)))
    rows.append(("total", len(space.points), space.cases, space.max_cases))
    lines = [f"{space.spec.name}: {', '.join(settings)}", f"{'task':<30} {'points':>8} {'a round':>10} {'cases':>10}"]
    lines += [f"{task:<30} {n_points:>8,} {cases:>10,} {most:>10,}" for task, n_points, cases, most in rows]
    if space.duplicates:
        lines.append(f"{space.duplicates:,} points are left out, because an earlier point has the same parameters")
    return [*lines, *describe_gaps(space), *space.spec.notes]


def _read_files(path: Path) -> SpaceFiles:
    """Return the space's text, with the task files in its folder or in the folder above."""
    text = _read_text(path)
    candidates = {name: (path.parent / name, path.parent.parent / name) for name in find_task_files(text)}
    paths = {name: next((path for path in both if path.is_file()), None) for name, both in candidates.items()}
    return SpaceFiles(text, path.name, {name: _read_text(path) for name, path in paths.items() if path})


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SpaceError([f"{path.name}: has more than {MAX_BYTES:,} bytes"])
        return content.decode("utf-8-sig")
    except OSError as error:
        raise SpaceError([f"{path.name}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise SpaceError([f"{path.name}: is not UTF-8 text"]) from None


class HubVerb(DatasetCommand):
    """The command with the verb `download`."""

    def do_download(self, repository: str, name: str, **options: Any) -> None:
        split = download_split(
            repository,
            configuration=options["config"],
            split=options["split"],
            revision=options["revision"],
            data_file=options["data_file"],
        )
        self.write(f"{repository} at revision {options['revision']}: commit {split.commit}; {', '.join(split.names)}")
        reading, _ = read_upload({"items": split.file}, parse_mapping(options["map"]))
        self.print_remarks(reading.report, reading.source_name)
        if options["dry_run"]:
            self.write(f"{len(reading.items)} items could be imported; nothing was saved")
            return
        about = {field: options[field] for field in ABOUT}
        about["source"] = f"{about['source']}\n{split.source}" if about["source"] else split.source
        about["licence"] = about["licence"] or split.licence
        dataset = create_dataset(reading, slug=name, by=self.by, recipe=split.recipe, **about)
        self.print_summary(dataset)
        self.write(f"It is a draft. Freeze it with: dataset approve {dataset} --reason TEXT")


def add_hub_verb(verbs: Any) -> None:
    parser = verbs.add_parser("download", help="a split of a dataset on the Hugging Face hub to a new draft")
    parser.add_argument("repository", metavar="OWNER/NAME")
    parser.add_argument("--name", required=True, metavar="SLUG")
    parser.add_argument("--config", default="", metavar="CONFIG", help="the configuration; default: the default one")
    parser.add_argument("--split", default="", metavar="SPLIT", help="such as test; default: all files")
    parser.add_argument("--revision", default="main", metavar="REVISION", help="a branch, a tag or a commit")
    parser.add_argument("--data-file", default="", metavar="PATH", help="a file of the repository, instead of a split")
    add_list_option(parser, "--map", metavar="FIELD=COLUMN", help="which column is which field")
    parser.add_argument("--dry-run", action="store_true", help="read and report, save nothing")
    for field in ABOUT:
        parser.add_argument(f"--{field}", default="", metavar="TEXT")
