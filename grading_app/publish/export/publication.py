"""A publication: the data of a study in one zip, described in the formats of the places where researchers publish.

- `preregistration.md`: the plan that was frozen before the launch, if there is one
- `data/`: items, trials and gradings as CSV
- `croissant.json`: Croissant 1.0 with the fields of its RAI extension
- `datapackage.json`: a data package with the codebook
- `datacite.json`, `CITATION.cff`: metadata for a DOI and for citing
- `README.md`, `eval.yaml`, `eval_results/`: a dataset card and a benchmark of the Hub, and results for the repositories
  of models
- `every_eval_ever/`: the results of each condition, and the scores of its answers

Descriptions only state what the site knows. A field that a format requires and nobody has entered says so.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO

import yaml
from django.db import transaction

import evalsite
from evalsite.lib.checksummed_zip import ArchiveWriter
from evalsite.lib.text.hashing import hash_content, slugify_name
from grading_app.models import AnswerScore
from grading_app.publish.export.columns import CODEBOOK, Column
from grading_app.publish.export.export_tables import TABLES
from grading_app.publish.export.file_formats import export_chunks
from grading_app.publish.export.snapshots import CONFIDENCE, NUMBERS, SnapshotError, json_part, refuse_while_live
from grading_app.results.frames import load_frames
from grading_app.results.scores import Measure
from runs_app.llm.providers import PROVIDERS
from runs_app.models import Condition, Experiment, Preregistration

PUBLICATION = "publication"
UNSTATED = "Not stated by the authors."
UNSTATED_ID = "OWNER/NAME"  # The author replaces it by the name of the repository.
CROISSANT_TYPES = {
    "text": "sc:Text",
    "integer": "sc:Integer",
    "decimal": "sc:Float",
    "real": "sc:Float",
    "flag": "sc:Boolean",
    "time": "sc:DateTime",
    "json": "sc:Text",
}
FRICTIONLESS_TYPES = {
    "text": "string",
    "integer": "integer",
    "decimal": "number",
    "real": "number",
    "flag": "boolean",
    "time": "datetime",
    "json": "string",
}
# The context of Croissant 1.0, which each file must contain.
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
HUB_SCORERS = {"exact_match": "exact", "contains": "includes", "multiple_choice": "choice"}


@transaction.atomic
def write_publication(experiment: Experiment, out: BinaryIO, *, hub_id: str = "") -> str:
    """Write the zip and return the digest of its content. `hub_id`: OWNER/NAME of the dataset's repository on the Hub.

    Raise SnapshotError for a draft dataset, or while runs are live.
    """
    if experiment.dataset.is_draft:
        raise SnapshotError(f"{experiment.dataset} is a draft: approve it first, so that its content has a hash")
    refuse_while_live(experiment)
    writer = ArchiveWriter(out)
    for table in CODEBOOK:
        writer.add(f"data/{table}.csv", export_chunks(experiment, table, "csv"))
    publication = Publication(experiment, writer)
    plan = Preregistration.objects.select_related("experiment").filter(experiment=experiment).first()
    parts: dict[str, bytes] = {
        "croissant.json": json_part(publication.to_croissant()),
        "datapackage.json": json_part(publication.to_data_package()),
        "datacite.json": json_part(publication.to_datacite()),
        "CITATION.cff": _to_yaml(publication.to_citation()),
        "README.md": publication.to_card(),
        "eval.yaml": _to_yaml(publication.to_benchmark()),
        **({} if plan is None else {"preregistration.md": plan.to_markdown().encode()}),
        **dict(publication.iterate_hub_results(hub_id or UNSTATED_ID)),
        **dict(publication.iterate_every_eval_ever()),
    }
    for name, content in parts.items():
        writer.add(name, [content])
    return writer.close()


def _iterate_columns(table: str) -> Iterator[tuple[Column, str]]:
    for column in TABLES[table].columns:
        yield column, CODEBOOK[table][column.name]


class Publication:
    """The facts of a study and its results, in each format of a publication."""

    def __init__(self, experiment: Experiment, writer: ArchiveWriter) -> None:
        dataset, owner = experiment.dataset, experiment.owner
        last = experiment.runs.exclude(finished_at=None).order_by("-finished_at").first()
        conditions = experiment.answer_conditions.select_related("model__endpoint", "prompt", "sampler")
        self.experiment, self.writer, self.conditions = experiment, writer, list(conditions.order_by("pk"))
        self.name, self.title = experiment.slug, experiment.title or experiment.slug
        unstated = f"Answers of language models: {experiment.slug}."
        self.description = experiment.description or dataset.description or unstated
        self.given, self.family = owner.first_name, owner.last_name
        self.author = owner.get_full_name() or owner.get_username()
        self.at = last.finished_at if last and last.finished_at else experiment.created_at
        self.dataset, self.dataset_hash = str(dataset), dataset.content_hash
        self.source, self.licence = dataset.source, dataset.licence
        self.models = sorted({condition.model.model for condition in self.conditions})
        self.has_judges = experiment.grade_conditions.filter(kind__in=("judge", "panel")).exists()
        self.has_people = experiment.rating_queues.exists()
        frames = load_frames(experiment)
        self.results = [
            {
                "measure": found.measure.label,
                "key": found.measure.key,
                "scores_of": found.measure,
                "is_share": found.measure.is_share,
                "condition": key,
                **{name: getattr(found.conditions[key], name) for name in NUMBERS},
            }
            for found in frames.scores
            for key in frames.labels
            if key in found.conditions
        ]

    def to_croissant(self) -> dict[str, Any]:
        graders = [
            *(["language models as judges"] if self.has_judges else []),
            *(["people"] if self.has_people else []),
            "rules",
        ]
        return {
            "@context": CONTEXT,
            "@type": "sc:Dataset",
            "name": self.name,
            "description": self.description,
            "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
            "license": self.licence or UNSTATED,
            "url": self.source if self.source.startswith("http") else "croissant.json",
            "version": "1.0.0",
            "datePublished": f"{self.at:%Y-%m-%d}",
            "creator": {"@type": "sc:Person", "name": self.author},
            "citeAs": f"{self.author} ({self.at:%Y}). {self.title}.",
            "keywords": ["evaluation", "language models"],
            "rai:dataCollection": (
                f"The models {', '.join(self.models) or 'of no provider yet'} answered the items of {self.dataset} "
                "through their providers' APIs. Every call was recorded."
            ),
            "rai:dataCollectionType": ["Software Collection"],
            "rai:dataCollectionTimeFrame": [f"{self.at:%Y-%m-%d}"],
            "rai:dataAnnotationProtocol": f"Answers were scored by {', '.join(graders)}; "
            "see the column kind of gradings.",
            "rai:machineAnnotationTools": [f"Evalsite {evalsite.__version__}"],
            "rai:dataLimitations": "The answers are samples of these models at this time. " + UNSTATED,
            "rai:dataBiases": UNSTATED,
            "rai:dataSocialImpact": UNSTATED,
            "rai:dataUseCases": "Comparison of language models on these items.",
            "rai:personalSensitiveInformation": UNSTATED,
            "distribution": [
                {
                    "@type": "cr:FileObject",
                    "@id": f"{table}.csv",
                    "name": f"{table}.csv",
                    "contentUrl": f"data/{table}.csv",
                    "encodingFormat": "text/csv",
                    "contentSize": f"{self.writer.sizes[f'data/{table}.csv']} B",
                    "sha256": self.writer.get_checksum(f"data/{table}.csv"),
                }
                for table in CODEBOOK
            ],
            "recordSet": [
                {
                    "@type": "cr:RecordSet",
                    "@id": table,
                    "name": table,
                    "field": [
                        {
                            "@type": "cr:Field",
                            "@id": f"{table}/{column.name}",
                            "name": column.name,
                            "description": description,
                            "dataType": CROISSANT_TYPES[column.kind],
                            "source": {"fileObject": {"@id": f"{table}.csv"}, "extract": {"column": column.name}},
                        }
                        for column, description in _iterate_columns(table)
                    ],
                }
                for table in CODEBOOK
            ],
        }

    def to_data_package(self) -> dict[str, Any]:
        return {
            "profile": "tabular-data-package",
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "created": self.at.isoformat(),
            "contributors": [{"title": self.author, "role": "author"}],
            **({"licenses": [{"title": self.licence, "name": slugify_name(self.licence)}]} if self.licence else {}),
            "resources": [
                {
                    "profile": "tabular-data-resource",
                    "name": table,
                    "path": f"data/{table}.csv",
                    "format": "csv",
                    "mediatype": "text/csv",
                    "encoding": "utf-8",
                    "bytes": self.writer.sizes[f"data/{table}.csv"],
                    "hash": f"sha256:{self.writer.get_checksum(f'data/{table}.csv')}",
                    "schema": {
                        "missingValues": [""],
                        "fields": [
                            {
                                "name": column.name,
                                "type": FRICTIONLESS_TYPES[column.kind],
                                "description": description,
                                **({"format": "any"} if column.kind == "time" else {}),
                                **({"trueValues": ["true"], "falseValues": ["false"]} if column.kind == "flag" else {}),
                            }
                            for column, description in _iterate_columns(table)
                        ],
                    },
                }
                for table in CODEBOOK
            ],
        }

    def to_datacite(self) -> dict[str, Any]:
        """Return metadata in the form of DataCite 4, without a DOI: the repository assigns it."""
        person = {"name": self.author, "nameType": "Personal"}
        if self.family:
            person |= {"name": f"{self.family}, {self.given}", "givenName": self.given,
                       "familyName": self.family}  # fmt: skip
        return {
            "creators": [person],
            "titles": [{"title": self.title}],
            "publisher": {"name": UNSTATED},
            "publicationYear": f"{self.at:%Y}",
            "types": {"resourceTypeGeneral": "Dataset", "resourceType": "Answers of language models with scores"},
            "dates": [{"date": f"{self.at:%Y-%m-%d}", "dateType": "Collected"}],
            "descriptions": [{"description": self.description, "descriptionType": "Abstract"}],
            "rightsList": [{"rights": self.licence}] if self.licence else [],
            "subjects": [{"subject": "evaluation"}, {"subject": "language models"}],
            "formats": ["text/csv"],
            "version": "1.0.0",
            "schemaVersion": "http://datacite.org/schema/kernel-4",
        }

    def to_citation(self) -> dict[str, Any]:
        names = {"family-names": self.family, "given-names": self.given}
        return {
            "cff-version": "1.2.0",
            "message": "If you use these data, please cite them with these metadata.",
            "type": "dataset",
            "title": self.title,
            "abstract": self.description,
            "authors": [names if self.family else {"name": self.author}],
            "date-released": f"{self.at:%Y-%m-%d}",
            "version": "1.0.0",
            "keywords": ["evaluation", "language models"],
        }

    def to_card(self) -> bytes:
        """Return a dataset card: metadata that the Hub reads, and a text."""
        metadata = {
            "pretty_name": self.title,
            "license": "other",
            "license_name": slugify_name(self.licence or "not-stated"),
            "tags": ["evaluation", "language-models"],
            "configs": [
                {"config_name": table, "data_files": [{"split": "test", "path": f"data/{table}.csv"}]}
                for table in CODEBOOK
            ],
        }
        tables = "\n".join(f"- `data/{table}.csv`: {len(CODEBOOK[table])} columns" for table in CODEBOOK)
        text = (
            f"# {self.title}\n\n{self.description}\n\n## Data\n\n{tables}\n\n"
            "`datapackage.json` describes each column. Texts that a spreadsheet would run as a formula begin with an"
            " apostrophe.\n\n"
            f"The items are those of `{self.dataset}` (hash `{self.dataset_hash}`), licence:"
            f" {self.licence or UNSTATED}\n"
        )
        return b"---\n" + _to_yaml(metadata) + b"---\n\n" + text.encode()

    def to_benchmark(self) -> dict[str, Any]:
        """Return the benchmark of the Hub. Its task asks the items of the dataset, with the experiment's first rule."""
        rules = [entry["scorer"] if isinstance(entry, dict) else entry for entry in self.experiment.scorers]
        scorer = next((HUB_SCORERS[rule] for rule in rules if rule in HUB_SCORERS), "match")
        choices = {"choices": "choices"} if scorer == "choice" else {}
        return {
            "name": self.title,
            "description": self.description,
            "evaluation_framework": "inspect-ai",
            "tasks": [
                {
                    "id": self.name,
                    "config": "items",
                    "split": "test",
                    "field_spec": {"input": "input", "target": "target", **choices},
                    "solvers": [{"name": "multiple_choice" if choices else "generate"}],
                    "scorers": [{"name": scorer}],
                }
            ],
        }

    def iterate_hub_results(self, hub_id: str) -> Iterator[tuple[str, bytes]]:
        """Yield a file for the repository of each model (folder `.eval_results/` there), with its shares in percent."""
        conditions = {condition.pk: condition for condition in self.conditions}
        for model in sorted({condition.model for condition in conditions.values()}, key=lambda model: model.name):
            entries = [
                {
                    "dataset": {"id": hub_id, "task_id": self.name},
                    "value": round(100 * score["mean"], 2),
                    "date": f"{self.at:%Y-%m-%d}",
                    "notes": f"{score['measure']}; {conditions[score['condition']].label}; n {score['n']}",
                }
                for score in self.results
                if score["is_share"] and score["mean"] is not None and conditions[score["condition"]].model == model
            ]
            if entries:
                yield f"eval_results/{slugify_name(model.name)}/.eval_results/{self.name}.yaml", _to_yaml(entries)

    def iterate_every_eval_ever(self) -> Iterator[tuple[str, bytes]]:
        """Yield a record of Every Eval Ever for each condition with a score, at its place in the common repository.

        The scores of its answers follow in a file beside it: those of measures that are shares, because each row states
        whether the answer is right.
        """
        retrieved = str(int(datetime.now(UTC).timestamp()))
        for condition in self.conditions:
            scores = [row for row in self.results if row["condition"] == condition.pk and row["mean"] is not None]
            if not scores:
                continue
            model, sampler = condition.model, condition.content["sampler"]
            provider = model.endpoint.provider
            identity = model.model if "/" in model.model else f"{provider}/{model.model}"
            arguments = {name: sampler[name] for name in ("temperature", "top_p", "max_tokens") if name in sampler}
            record = {
                "schema_version": "0.3.0",
                "evaluation_id": f"{self.name}/{identity}/{retrieved}",
                "evaluation_timestamp": self.at.isoformat(),
                "retrieved_timestamp": retrieved,
                "source_metadata": {
                    "source_name": self.title,
                    "source_type": "evaluation_run",
                    "source_organization_name": self.author,
                    "evaluator_relationship": "third_party",
                },
                "eval_library": {"name": "evalsite", "version": evalsite.__version__},
                "model_info": {
                    "name": model.name,
                    "id": identity,
                    "inference_platform": provider,
                    "additional_details": {
                        "deployment_type": "self_deployed"
                        if PROVIDERS[provider].is_self_hosted
                        else "externally_managed",
                        "model_availability": "unknown",
                    },
                },
                "evaluation_results": [self._build_result(row, arguments, condition) for row in scores],
            }
            # The format wants a name of version 4. The same condition keeps its name.
            name = uuid.UUID(hash_content([self.name, condition.condition_id])[:32], version=4)
            developer, _, model_name = identity.partition("/")
            folder = f"every_eval_ever/data/{self.name}/{slugify_name(developer)}/{slugify_name(model_name)}"
            path = f"{folder}/{name}_samples.jsonl"
            rows = _list_instances(condition, [row for row in scores if row["is_share"]], record)
            if rows:
                content = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
                record["detailed_evaluation_results"] = {
                    "format": "jsonl",
                    "file_path": path.removeprefix("every_eval_ever/"),
                    "hash_algorithm": "sha256",
                    "checksum": hashlib.sha256(content).hexdigest(),
                    "total_rows": len(rows),
                }
                yield path, content
            yield f"{folder}/{name}.json", json_part(record)

    def _build_result(self, row: Mapping[str, Any], arguments: dict[str, Any], condition: Condition) -> dict[str, Any]:
        uncertainty: dict[str, Any] = {"num_samples": row["n"]}
        if row["se"] is not None:
            uncertainty["standard_error"] = {"value": row["se"], "method": "analytic"}
        if row["sd"] is not None:
            uncertainty["standard_deviation"] = row["sd"]
        if row["low"] is not None:
            uncertainty["confidence_interval"] = {
                "lower": row["low"],
                "upper": row["high"],
                "confidence_level": CONFIDENCE,
                "method": row["method"],
            }
        metric: dict[str, Any] = {"metric_name": row["measure"], "lower_is_better": False}
        if row["is_share"]:
            metric |= {"metric_unit": "proportion", "score_type": "continuous", "min_score": 0, "max_score": 1}
        return {
            "evaluation_result_id": row["key"],
            "evaluation_name": self.title,
            "source_data": {
                "dataset_name": self.dataset,
                "source_type": "other",
                "source_id": self.dataset_hash,
            },
            "metric_config": metric,
            "score_details": {"score": row["mean"], "uncertainty": uncertainty},
            "generation_config": {
                "generation_args": {
                    **arguments,
                    "prompt_template": json.dumps(condition.content["prompt"]["messages"], ensure_ascii=False),
                }
            },
        }


def _list_instances(
    condition: Condition, scores: list[dict[str, Any]], record: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return a row of Every Eval Ever for each answer with a score on one of these measures."""
    instances = []
    for row in scores:
        measure: Measure = row["scores_of"]
        found = AnswerScore.objects.filter(condition=condition, grader_kind=measure.kind, grader_id=measure.grader)
        found = found.exclude(score=None)
        if measure.dimension is not None:
            found = found.filter(dimension_id=measure.dimension)
        for one in found.select_related("trial", "item").order_by("trial"):
            trial, item = one.trial, one.item
            reference = [] if item.target is None else [str(item.target)]
            instances.append(
                {
                    "schema_version": record["schema_version"],
                    "evaluation_id": record["evaluation_id"],
                    "model_id": record["model_info"]["id"],
                    "evaluation_name": record["evaluation_results"][0]["evaluation_name"],
                    "evaluation_result_id": row["key"],
                    "sample_id": item.key,
                    "sample_hash": hashlib.sha256("".join([item.input, *reference]).encode()).hexdigest(),
                    "interaction_type": "single_turn",
                    "input": {"raw": item.input, "reference": reference, "choices": item.choices or None},
                    "output": {
                        "raw": [trial.answer],
                        "reasoning_trace": [trial.reasoning] if trial.reasoning else None,
                    },
                    "messages": None,
                    "answer_attribution": [
                        {
                            "turn_idx": 0,
                            "source": "output.raw",
                            "extracted_value": trial.answer,
                            "extraction_method": measure.label,
                            "is_terminal": True,
                        }
                    ],
                    "evaluation": {"score": one.score, "is_correct": one.score == 1},
                    "token_usage": None
                    if trial.input_tokens is None or trial.output_tokens is None
                    else {
                        "input_tokens": trial.input_tokens,
                        "output_tokens": trial.output_tokens,
                        "total_tokens": trial.input_tokens + trial.output_tokens,
                    },
                    "performance": None if trial.latency_ms is None else {"latency_ms": trial.latency_ms},
                    "metadata": {"sample_idx": str(trial.sample_idx)},
                }
            )
    return instances


def _to_yaml(content: Any) -> bytes:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110).encode()
