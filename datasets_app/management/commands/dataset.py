"""The command `manage.py dataset VERB ...`: curation of datasets, with the same rules as on the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets_app import curation
from datasets_app.importing import parse_mapping
from datasets_app.importing.dataset_writer import create_dataset, save_items, save_norms
from datasets_app.importing.limited_reader import FileToRead, read_norm_table, read_upload
from datasets_app.management.dataset_verbs import HubVerb, ParametricVerb, add_hub_verb, add_parametric_verb
from datasets_app.models import Dataset, Item
from datasets_app.models.datasets import ABOUT, CurationError
from datasets_app.sampling import STRATEGIES
from evalsite.lib.ops.commands import add_list_option, add_user, refuse_input, resolve_approver


class Command(ParametricVerb, HubVerb):
    help = "Import, generate, show, sample, edit, approve, archive, duplicate and delete datasets."

    def add_verbs(self, verbs: Any) -> None:
        for add in (_add_import_verbs, add_hub_verb, add_parametric_verb, _add_item_verbs, _add_state_verbs):
            add(verbs)
        for parser in verbs.choices.values():
            add_user(parser)

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


def _add_item_verbs(verbs: Any) -> None:
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


def _add_state_verbs(verbs: Any) -> None:
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
