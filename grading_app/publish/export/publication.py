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
    writer, facts = ArchiveWriter(out), _build_facts(experiment)
    for table in CODEBOOK:
        writer.add(f"data/{table}.csv", export_chunks(experiment, table, "csv"))
    frames = load_frames(experiment)
    results = [
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
    names = {"family-names": facts["family"], "given-names": facts["given"]}
    citation: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use these data, please cite them with these metadata.",
        "type": "dataset",
        "title": facts["title"],
        "abstract": facts["description"],
        "authors": [names if facts["family"] else {"name": facts["author"]}],
        "date-released": f"{facts['at']:%Y-%m-%d}",
        "version": "1.0.0",
        "keywords": ["evaluation", "language models"],
    }
    plan = Preregistration.objects.select_related("experiment").filter(experiment=experiment).first()
    parts: dict[str, bytes] = {
        "croissant.json": json_part(_build_croissant(facts, writer)),
        "datapackage.json": json_part(_build_data_package(facts, writer)),
        "datacite.json": json_part(_build_datacite(facts)),
        "CITATION.cff": _to_yaml(citation),
        "README.md": _build_card(facts),
        "eval.yaml": _to_yaml(_build_benchmark(experiment, facts)),
        **({} if plan is None else {"preregistration.md": plan.to_markdown().encode()}),
        **dict(_build_hub_results(experiment, results, facts, hub_id or UNSTATED_ID)),
        **dict(_build_every_eval_ever(experiment, results, facts)),
    }
    for name, content in parts.items():
        writer.add(name, [content])
    return writer.close()


def _build_facts(experiment: Experiment) -> dict[str, Any]:
    dataset, owner = experiment.dataset, experiment.owner
    last = experiment.runs.exclude(finished_at=None).order_by("-finished_at").first()
    moment = last.finished_at if last and last.finished_at else experiment.created_at
    return {
        "name": experiment.slug,
        "title": experiment.title or experiment.slug,
        "description": experiment.description
        or dataset.description
        or f"Answers of language models: {experiment.slug}.",
        "given": owner.first_name,
        "family": owner.last_name,
        "author": owner.get_full_name() or owner.get_username(),
        "at": moment,
        "dataset": str(dataset),
        "dataset_hash": dataset.content_hash,
        "source": dataset.source,
        "licence": dataset.licence,
        "items": dataset.active_count,
        "models": sorted({condition.model.model for condition in _list_conditions(experiment)}),
        "judges": experiment.grade_conditions.filter(kind__in=("judge", "panel")).exists(),
        "people": experiment.rating_queues.exists(),
    }


def _list_conditions(experiment: Experiment) -> list[Condition]:
    rows = experiment.answer_conditions.select_related("model__endpoint", "prompt", "sampler")
    return list(rows.order_by("pk"))


def _iterate_columns(table: str) -> Iterator[tuple[Column, str]]:
    for column in TABLES[table].columns:
        yield column, CODEBOOK[table][column.name]


def _build_croissant(facts: Mapping[str, Any], writer: ArchiveWriter) -> dict[str, Any]:
    graders = [
        *(["language models as judges"] if facts["judges"] else []),
        *(["people"] if facts["people"] else []),
        "rules",
    ]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": facts["name"],
        "description": facts["description"],
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "license": facts["licence"] or UNSTATED,
        "url": facts["source"] if facts["source"].startswith("http") else "croissant.json",
        "version": "1.0.0",
        "datePublished": f"{facts['at']:%Y-%m-%d}",
        "creator": {"@type": "sc:Person", "name": facts["author"]},
        "citeAs": f"{facts['author']} ({facts['at']:%Y}). {facts['title']}.",
        "keywords": ["evaluation", "language models"],
        "rai:dataCollection": (
            f"The models {', '.join(facts['models']) or 'of no provider yet'} answered the items of {facts['dataset']} "
            "through their providers' APIs. Every call was recorded."
        ),
        "rai:dataCollectionType": ["Software Collection"],
        "rai:dataCollectionTimeFrame": [f"{facts['at']:%Y-%m-%d}"],
        "rai:dataAnnotationProtocol": f"Answers were scored by {', '.join(graders)}; see the column kind of gradings.",
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
                "contentSize": f"{writer.sizes[f'data/{table}.csv']} B",
                "sha256": writer.get_checksum(f"data/{table}.csv"),
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


def _build_data_package(facts: Mapping[str, Any], writer: ArchiveWriter) -> dict[str, Any]:
    return {
        "profile": "tabular-data-package",
        "name": facts["name"],
        "title": facts["title"],
        "description": facts["description"],
        "created": facts["at"].isoformat(),
        "contributors": [{"title": facts["author"], "role": "author"}],
        **(
            {"licenses": [{"title": facts["licence"], "name": slugify_name(facts["licence"])}]}
            if facts["licence"]
            else {}
        ),
        "resources": [
            {
                "profile": "tabular-data-resource",
                "name": table,
                "path": f"data/{table}.csv",
                "format": "csv",
                "mediatype": "text/csv",
                "encoding": "utf-8",
                "bytes": writer.sizes[f"data/{table}.csv"],
                "hash": f"sha256:{writer.get_checksum(f'data/{table}.csv')}",
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


def _build_datacite(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata in the form of DataCite 4, without a DOI: the repository assigns it."""
    person = {"name": facts["author"], "nameType": "Personal"}
    if facts["family"]:
        person |= {"name": f"{facts['family']}, {facts['given']}", "givenName": facts["given"],
                   "familyName": facts["family"]}  # fmt: skip
    return {
        "creators": [person],
        "titles": [{"title": facts["title"]}],
        "publisher": {"name": UNSTATED},
        "publicationYear": f"{facts['at']:%Y}",
        "types": {"resourceTypeGeneral": "Dataset", "resourceType": "Answers of language models with scores"},
        "dates": [{"date": f"{facts['at']:%Y-%m-%d}", "dateType": "Collected"}],
        "descriptions": [{"description": facts["description"], "descriptionType": "Abstract"}],
        "rightsList": [{"rights": facts["licence"]}] if facts["licence"] else [],
        "subjects": [{"subject": "evaluation"}, {"subject": "language models"}],
        "formats": ["text/csv"],
        "version": "1.0.0",
        "schemaVersion": "http://datacite.org/schema/kernel-4",
    }


def _build_card(facts: Mapping[str, Any]) -> bytes:
    """Return a dataset card: metadata that the Hub reads, and a text."""
    metadata = {
        "pretty_name": facts["title"],
        "license": "other",
        "license_name": slugify_name(facts["licence"] or "not-stated"),
        "tags": ["evaluation", "language-models"],
        "configs": [
            {"config_name": table, "data_files": [{"split": "test", "path": f"data/{table}.csv"}]} for table in CODEBOOK
        ],
    }
    tables = "\n".join(f"- `data/{table}.csv`: {len(CODEBOOK[table])} columns" for table in CODEBOOK)
    text = (
        f"# {facts['title']}\n\n{facts['description']}\n\n## Data\n\n{tables}\n\n"
        "`datapackage.json` describes each column. Texts that a spreadsheet would run as a formula begin with an"
        " apostrophe.\n\n"
        f"The items are those of `{facts['dataset']}` (hash `{facts['dataset_hash']}`), licence:"
        f" {facts['licence'] or UNSTATED}\n"
    )
    return b"---\n" + _to_yaml(metadata) + b"---\n\n" + text.encode()


def _build_benchmark(experiment: Experiment, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the benchmark of the Hub: its task asks the items of this dataset, with the experiment's first rule."""
    rules = [entry["scorer"] if isinstance(entry, dict) else entry for entry in experiment.scorers]
    scorer = next((HUB_SCORERS[rule] for rule in rules if rule in HUB_SCORERS), "match")
    choices = {"choices": "choices"} if scorer == "choice" else {}
    return {
        "name": facts["title"],
        "description": facts["description"],
        "evaluation_framework": "inspect-ai",
        "tasks": [
            {
                "id": facts["name"],
                "config": "items",
                "split": "test",
                "field_spec": {"input": "input", "target": "target", **choices},
                "solvers": [{"name": "multiple_choice" if choices else "generate"}],
                "scorers": [{"name": scorer}],
            }
        ],
    }


def _build_hub_results(
    experiment: Experiment, results: list[dict[str, Any]], facts: Mapping[str, Any], hub_id: str
) -> Iterator[tuple[str, bytes]]:
    """Yield one file for the repository of each model (folder `.eval_results/` there), with its shares in percent."""
    conditions = {condition.pk: condition for condition in _list_conditions(experiment)}
    for model in sorted({condition.model for condition in conditions.values()}, key=lambda model: model.name):
        entries = [
            {
                "dataset": {"id": hub_id, "task_id": facts["name"]},
                "value": round(100 * score["mean"], 2),
                "date": f"{facts['at']:%Y-%m-%d}",
                "notes": f"{score['measure']}; {conditions[score['condition']].label}; n {score['n']}",
            }
            for score in results
            if score["is_share"] and score["mean"] is not None and conditions[score["condition"]].model == model
        ]
        if entries:
            yield f"eval_results/{slugify_name(model.name)}/.eval_results/{facts['name']}.yaml", _to_yaml(entries)


def _build_every_eval_ever(
    experiment: Experiment, results: list[dict[str, Any]], facts: Mapping[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """Yield a record of Every Eval Ever for each condition with a score, at its place in the common repository.

    The scores of its answers follow in a file beside it: those of measures that are shares, because each row states
    whether the answer is right.
    """
    retrieved = str(int(datetime.now(UTC).timestamp()))
    for condition in _list_conditions(experiment):
        scores = [row for row in results if row["condition"] == condition.pk and row["mean"] is not None]
        if not scores:
            continue
        model, sampler = condition.model, condition.content["sampler"]
        provider = model.endpoint.provider
        identity = model.model if "/" in model.model else f"{provider}/{model.model}"
        arguments = {name: sampler[name] for name in ("temperature", "top_p", "max_tokens") if name in sampler}
        record = {
            "schema_version": "0.3.0",
            "evaluation_id": f"{facts['name']}/{identity}/{retrieved}",
            "evaluation_timestamp": facts["at"].isoformat(),
            "retrieved_timestamp": retrieved,
            "source_metadata": {
                "source_name": facts["title"],
                "source_type": "evaluation_run",
                "source_organization_name": facts["author"],
                "evaluator_relationship": "third_party",
            },
            "eval_library": {"name": "evalsite", "version": evalsite.__version__},
            "model_info": {
                "name": model.name,
                "id": identity,
                "inference_platform": provider,
                "additional_details": {
                    "deployment_type": "self_deployed" if PROVIDERS[provider].is_self_hosted else "externally_managed",
                    "model_availability": "unknown",
                },
            },
            "evaluation_results": [_build_result(row, facts, arguments, condition) for row in scores],
        }
        # The format wants a name of version 4. The same condition keeps its name.
        name = uuid.UUID(hash_content([facts["name"], condition.condition_id])[:32], version=4)
        developer, _, model_name = identity.partition("/")
        folder = f"every_eval_ever/data/{facts['name']}/{slugify_name(developer)}/{slugify_name(model_name)}"
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


def _build_result(
    row: Mapping[str, Any], facts: Mapping[str, Any], arguments: dict[str, Any], condition: Condition
) -> dict[str, Any]:
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
        "evaluation_name": facts["title"],
        "source_data": {
            "dataset_name": facts["dataset"],
            "source_type": "other",
            "source_id": facts["dataset_hash"],
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


def _to_yaml(content: Any) -> bytes:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110).encode()
