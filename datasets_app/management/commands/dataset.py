"""The command `manage.py dataset VERB ...`: curation of datasets, with the same rules as on the site.

`parametric` turns a space of difficulty from a file into points, cases and a draft. `download` imports a split of a
dataset on the Hugging Face hub as a draft, pinned to a commit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from datasets_app import curation
from datasets_app.importing import FileError, parse_mapping
from datasets_app.importing.dataset_writer import create_dataset, save_items, save_norms
from datasets_app.importing.hub_dataset import download_split
from datasets_app.importing.limited_reader import FileToRead, read_norm_table, read_upload
from datasets_app.importing.records import ReadingReport
from datasets_app.models import Dataset, Item
from datasets_app.models.datasets import ABOUT, CurationError
from datasets_app.parametric.dataset_builder import SpaceFiles, compare_with_newest, create_parametric_dataset
from datasets_app.parametric.items import describe_gaps
from datasets_app.parametric.manifolds import DENSITIES
from datasets_app.parametric.spaces import SEED, Space, resolve_space
from datasets_app.parametric.spec import SpaceError, find_task_files, read_space
from datasets_app.sampling import STRATEGIES
from evalsite.lib.history import Actor, TransitionError
from evalsite.lib.ops.commands import (
    VerbCommand,
    add_list_option,
    add_user,
    refuse_input,
    resolve_actor,
    resolve_approver,
)

MAX_BYTES = 5_000_000


class Command(VerbCommand):
    """The verbs. Changes have the author `by`."""

    help = "Import, generate, show, sample, edit, approve, archive, duplicate and delete datasets."
    refusals: ClassVar[tuple[type[Exception], ...]] = (CurationError, TransitionError, FileError, SpaceError)
    by: Actor

    def add_verbs(self, verbs: Any) -> None:
        for add in (_add_import_verbs, _add_parametric_verbs, _add_draft_verbs):
            add(verbs)
        for parser in verbs.choices.values():
            add_user(parser)

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

    # --- importing ---------------------------------------------------------------------------------------------------

    def do_import(self, file: Path, name: str, **options: Any) -> None:
        files = _open_files(items=file, images=options["images"], norms=options["norms"])
        reading, norms = read_upload(files, parse_mapping(options["map"]))
        self.print_remarks(reading.report, reading.source_name)
        if options["norms"]:
            self.print_remarks(norms.report, options["norms"].name)
        if options["dry_run"]:
            self.write(f"{len(reading.items)} items could be imported; nothing was saved")
            return
        about = {field: options[field] for field in ABOUT}
        dataset = create_dataset(reading, slug=name, by=self.by, norms=norms.norms, **about)
        self.print_summary(dataset)
        self.write(f"It is a draft. Freeze it with: dataset approve {dataset} --reason TEXT")

    def do_norms(self, dataset: str, file: Path, **options: Any) -> None:
        row = _find_dataset(dataset)
        categories = dict(row.items.values_list("key", "category"))
        reading = read_norm_table(FileToRead(file, file.name), categories, parse_mapping(options["map"]))
        self.print_remarks(reading.report, file.name)
        self.write(f"{row}: {save_norms(row, reading.norms, by=self.by)} norms")

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
        for line in _describe_space(space):
            self.write(line)
        if options["dry_run"]:
            extension = compare_with_newest(space, name)
            self.write(f"{f'{extension}; ' if extension else ''}nothing was saved")
            return
        about = {field: options[field] for field in ABOUT}
        dataset = create_parametric_dataset(space, files, slug=name, by=self.by, **about)
        self.print_summary(dataset)
        self.write(f"It is a draft. Freeze it with: dataset approve {dataset} --reason TEXT")

    # --- listing and showing -----------------------------------------------------------------------------------------

    def do_list(self, status: str | None, **options: Any) -> None:
        datasets = Dataset.objects.filter(status=status) if status else Dataset.objects.all()
        if options["json"]:
            self.write_json([_build_row(dataset) for dataset in datasets])
            return
        for dataset in datasets:
            counts = f"{dataset.active_count}/{dataset.item_count}"
            self.write(f"{dataset!s:<30} {dataset.status:<9} {counts:>13}  {dataset.title}")

    def do_show(self, dataset: str, **options: Any) -> None:
        row = _find_dataset(dataset)
        items = row.items.prefetch_related("norms").iterator(chunk_size=1000) if options["items"] else iter(())
        if options["json"]:
            facts = _build_row(row)
            if options["items"]:
                self.write_json_with_rows(facts, "items", map(_build_item, items))
            else:
                self.write_json(facts)
            return
        self.print_summary(row)
        for change in row.history:
            reason = f": {change.reason}" if change.reason else ""
            self.write(f"  {change.at:%Y-%m-%d %H:%M:%S} UTC  {change.actor}  {change.aspect} {change.change}{reason}")
        for item in items:
            self.write(f"  {item.key:<30} {item.category:<16} {'excluded: ' + item.note if item.excluded else ''}")

    def do_answers(self, dataset: str, **options: Any) -> None:
        for answer in _find_dataset(dataset).iterate_answer_key():
            self.write_file(json.dumps(answer))

    # --- sampling and editing ----------------------------------------------------------------------------------------

    def do_generate(self, dataset: str, name: str, strategy: Any, n: int | None, seed: int, **options: Any) -> None:
        parent = _find_dataset(dataset)
        self.print_summary(curation.sample_dataset(parent, slug=name, strategy=strategy, n=n, seed=seed, by=self.by))

    def do_add(self, dataset: str, keys: list[str], reason: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        if options["file"]:
            files = _open_files(items=options["file"], images=options["images"])
            reading, _ = read_upload(files, parse_mapping(options["map"]))
            self.print_remarks(reading.report, reading.source_name)
            save_items(draft, reading, by=self.by)
        else:
            source = _find_dataset(options["from"]) if options["from"] else draft.parent
            if source is None:
                raise CurationError(
                    f"from: name the dataset of the items, because {draft} is not a sample of a dataset"
                )
            curation.add_items(draft, keys, source=source, by=self.by, reason=reason)
        self.print_summary(draft)

    def do_remove(self, dataset: str, keys: list[str], reason: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        draft.remove_items(keys, by=self.by, reason=reason)
        self.print_summary(draft)

    def do_exclude(self, dataset: str, keys: list[str], note: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        draft.exclude_items(keys, by=self.by, reason=note)
        self.print_summary(draft)

    def do_include(self, dataset: str, keys: list[str], note: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        draft.include_items(keys, by=self.by, reason=note)
        self.print_summary(draft)

    def do_replace(self, dataset: str, key: str, seed: int, reason: str, **options: Any) -> None:
        new = curation.replace_item(_find_dataset(dataset), key, by=self.by, seed=seed, reason=reason)
        self.write(f"{dataset}: {key} is replaced by {new}")

    def do_reshuffle(self, dataset: str, seed: int, reason: str, **options: Any) -> None:
        draft = _find_dataset(dataset)
        curation.reshuffle_items(draft, by=self.by, seed=seed, reason=reason)
        self.print_summary(draft)

    # --- states ------------------------------------------------------------------------------------------------------

    def do_approve(self, dataset: str, reason: str, user: str, **options: Any) -> None:
        row = _find_dataset(dataset, exact=True)
        approver = resolve_approver(user, "datasets_app.approve_dataset", "dataset")
        row.approve(by=approver, reason=reason)
        self.print_summary(row)

    def do_describe(self, dataset: str, reason: str, **options: Any) -> None:
        row = _find_dataset(dataset, exact=True)
        about = {field: options[field] for field in ABOUT if options[field] is not None}
        if not about:
            refuse_input(f"name the fields to change: {', '.join(f'--{field} TEXT' for field in ABOUT)}")
        changed = row.change_description(about, by=self.by, reason=reason)
        self.write(f"{row}: changed {', '.join(changed)}" if changed else f"{row}: nothing is different")

    def do_archive(self, dataset: str, reason: str, **options: Any) -> None:
        row = _find_dataset(dataset, exact=True)
        row.archive(by=self.by, reason=reason)
        self.write(f"{row} is archived")

    def do_duplicate(self, dataset: str, name: str, reason: str, **options: Any) -> None:
        self.print_summary(curation.duplicate(_find_dataset(dataset), by=self.by, slug=name, reason=reason))

    def do_delete(self, dataset: str, reason: str, yes: bool, **options: Any) -> None:
        row = _find_dataset(dataset, exact=True)
        self.confirm(f"Delete {row} with its {row.item_count} items?", yes)
        row.delete_draft(by=self.by, reason=reason)
        self.write(f"{dataset} is deleted")


def _open_files(**paths: Path | None) -> dict[str, FileToRead]:
    return {part: FileToRead(Path(path), Path(path).name) for part, path in paths.items() if path is not None}


def _find_dataset(reference: str, *, exact: bool = False) -> Dataset:
    """Return the dataset of this reference. With `exact`, require a version, to avoid changes to the wrong one."""
    if exact and "@" not in reference:
        refuse_input(f"which version of {reference!r}? Write {reference}@1")
    row: Dataset | None = Dataset.objects.named(reference).select_related("parent").first()
    if row is None:
        refuse_input(f"there is no dataset {reference!r}; `dataset list` lists them")
    return row


def _describe_space(space: Space) -> list[str]:
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


def _build_row(dataset: Dataset) -> dict[str, Any]:
    return {
        "dataset": str(dataset),
        "status": dataset.status,
        "title": dataset.title,
        "item_count": dataset.item_count,
        "active": dataset.active_count,
        "categories": dataset.count_active_by_category(),
        "content_hash": dataset.content_hash,
        "source": dataset.source,
        "licence": dataset.licence,
        "source_name": dataset.source_name,
        "source_sha256": dataset.source_sha256,
        "mapping": dataset.mapping,
        "recipe": dataset.recipe,
        "parent": str(dataset.parent) if dataset.parent else None,
        "created_at": dataset.created_at.isoformat(),
        "approved_at": dataset.approved_at.isoformat() if dataset.approved_at else None,
    }


def _build_item(item: Item) -> dict[str, Any]:
    return {
        **{name: getattr(item, name) for name in ("key", "category", "input")},
        "image": item.image_id,
        **{name: getattr(item, name) for name in ("target", "choices", "grading_scheme", "metadata")},
        "norms": {norm.dimension: {"mean": norm.mean, "sd": norm.sd, "n": norm.n} for norm in item.norms.all()},
        **{name: getattr(item, name) for name in ("excluded", "note")},
    }


def _add_import_verbs(verbs: Any) -> None:
    parser = verbs.add_parser("import", help="import a file as a new dataset, or as the next version of a name")
    parser.add_argument("file", type=Path)
    parser.add_argument("--name", required=True, metavar="SLUG")
    _add_source_options(parser)
    parser.add_argument("--norms", type=Path, metavar="FILE")
    parser.add_argument("--dry-run", action="store_true", help="check the file and save nothing")
    for field in ABOUT:
        parser.add_argument(f"--{field}", default="", metavar="TEXT")
    parser = _add_verb(verbs, "norms", "import human norms from a file into a draft")
    parser.add_argument("file", type=Path)
    add_list_option(parser, "--map", metavar="FIELD=COLUMN", help="map a field to a column or an expression")
    parser = verbs.add_parser("list", help="list all datasets")
    parser.add_argument("--status", choices=Dataset.Status.values)
    parser.add_argument("--json", action="store_true")
    parser = _add_verb(verbs, "show", "show a dataset, its hash and its history")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--items", action="store_true", help="show the items, too")
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


def _add_parametric_verbs(verbs: Any) -> None:
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


def _add_draft_verbs(verbs: Any) -> None:
    parser = _add_verb(verbs, "generate", "create a draft from a sample of a dataset")
    parser.add_argument("--name", required=True, metavar="SLUG")
    parser.add_argument("--strategy", choices=STRATEGIES, default="stratified")
    parser.add_argument("--n", type=int)
    parser.add_argument("--seed", type=int, default=42)
    parser = _add_verb(verbs, "add", "add items of another dataset, or of a file, to a draft", reason=True)
    parser.add_argument("keys", nargs="*", metavar="KEY")
    parser.add_argument("--from", metavar="SLUG@V", help="default: the draft's parent dataset")
    parser.add_argument("--file", type=Path)
    _add_source_options(parser)
    _add_verb(verbs, "remove", "remove items from a draft", reason=True).add_argument("keys", nargs="+", metavar="KEY")
    for verb, is_required in (("exclude", True), ("include", False)):
        parser = _add_verb(verbs, verb, f"{verb} items of a draft")
        parser.add_argument("keys", nargs="+", metavar="KEY")
        parser.add_argument("--note", required=is_required, default="", metavar="TEXT")
    parser = _add_verb(
        verbs, "replace", "replace an item of a sampled draft with another item of its category", reason=True
    )
    parser.add_argument("key", metavar="KEY")
    parser.add_argument("--seed", type=int, default=42)
    _add_verb(verbs, "reshuffle", "draw the sample of a draft again", reason=True).add_argument(
        "--seed", type=int, required=True
    )
    for verb, help_text in (("approve", "freeze a draft permanently"), ("archive", "withdraw an approved dataset")):
        _add_verb(verbs, verb, help_text).add_argument("--reason", required=True, metavar="TEXT")
    parser = _add_verb(verbs, "describe", "change title, description, source or licence", reason=True)
    for field in ABOUT:
        parser.add_argument(f"--{field}", metavar="TEXT")
    parser = _add_verb(verbs, "duplicate", "copy the active items to a new draft", reason=True)
    parser.add_argument("--name", default="", metavar="SLUG", help="default: the next version of the same name")
    _add_verb(verbs, "delete", "delete a draft", reason=True).add_argument("--yes", action="store_true")


def _add_verb(verbs: Any, name: str, help_text: str, *, reason: bool = False) -> Any:
    parser = verbs.add_parser(name, help=help_text)
    parser.add_argument("dataset", metavar="SLUG@V")
    if reason:
        parser.add_argument("--reason", default="", metavar="TEXT")
    return parser


def _add_source_options(parser: Any) -> None:
    add_list_option(parser, "--map", metavar="FIELD=COLUMN", help="map a field to a column or an expression")
    parser.add_argument("--images", type=Path, metavar="DIR_OR_ZIP")
