"""inspect_ai: logs as `.eval` (a zip) or `.json`. One log is one condition; several logs of a folder are one study."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from datasets_app.importing.limited_reader import FileToRead, read_upload
from datasets_app.importing.records import BufferedImage, ScratchFolder
from evalsite.lib.text.hashing import hash_content
from grading_app.study_import.inspect_files import Log, find_log_files, looks_like_a_log, read_header, read_samples
from grading_app.study_import.inspect_samples import (
    GRADES,
    Judges,
    build_call,
    build_item,
    build_trial,
    build_turn,
    list_calls,
    list_judges,
    name_part,
    read_image,
    read_time,
)
from grading_app.study_import.key_index import KeyIndex
from grading_app.study_import.study import (
    Study,
    StudyCondition,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyJudge,
    StudyTrial,
    refuse_unreadable,
    separate_equal,
    split_model,
)

SETTINGS = ("temperature", "top_p", "max_tokens", "seed")
# The messages of a sample have the calls of tools and their results, too.
TAKEN_EVENTS = {"model", "tool", "score", "state", "sample_init", "step", "span_begin", "span_end", "error"}
OLDEST = datetime.min.replace(tzinfo=UTC)
LETTERS = (0.0, 1.0)  # The scale of the grades C, P, I and N.


@dataclass(frozen=True)
class LogFile:
    """A log with the key of its condition and the time of its start."""

    path: Path
    condition: str
    created_at: datetime


@dataclass
class LogFacts:
    """Facts about the samples of all logs, by keys of items and conditions.

    images: the hash of each item's image. texts: the conditions with samples without an image. judges: the models of
    each scorer that asks one, by condition and name. parts: the keys of its scores; "" for a score that is no object.
    numbers: the judges that gave another value than a letter. left_out: parts of messages by kind.
    """

    items: dict[str, StudyItem] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    judges: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    parts: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    numbers: set[tuple[str, str]] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    limits: Counter[str] = field(default_factory=Counter)


def is_inspect(path: Path) -> bool:
    return any(looks_like_a_log(file) for file in find_log_files(path))


def read_inspect(path: Path) -> Study:
    """Return the study of one log, or of all logs in a folder. Raise StudyError for a log that cannot be read."""
    files = [file for file in find_log_files(path) if looks_like_a_log(file)]
    if not files:
        raise StudyError([f"{path.name}: no log of inspect_ai (.eval or .json)"])
    facts, scratch = LogFacts(), ScratchFolder()
    logs: list[LogFile] = []
    headers: dict[str, Log] = {}
    conditions: dict[str, StudyCondition] = {}
    notes: list[str] = []
    for file in files:
        header = read_header(file)
        with refuse_unreadable(file.name):
            condition = _build_condition(header)
            logs.append(LogFile(file, condition.key, read_time((header.get("eval") or {}).get("created")) or OLDEST))
        headers.setdefault(condition.key, header)
        conditions.setdefault(condition.key, condition)
        if header.get("status") != "success":
            notes.append(f"{file.name}: status {header.get('status')}; its finished samples are taken.")
        for where, sample in read_samples(file):
            with refuse_unreadable(where):
                _add_sample(where, condition.key, sample, facts, scratch.path)
    images, reading = _read_images(facts, scratch.path)
    items = [replace(item, image=images.get(facts.images.get(key, ""))) for key, item in facts.items.items()]
    with_images = [
        condition if key in facts.texts else replace(condition, messages=_show_image(condition.messages))
        for key, condition in conditions.items()
    ]
    distinct_conditions, separation_notes = separate_equal(with_images)
    judges, names = _build_judges(facts, headers)
    task = (headers[logs[0].condition].get("eval") or {}).get("task", path.stem)
    return Study(
        name=str(task).rpartition("/")[2],
        tool="inspect",
        items=items,
        conditions=distinct_conditions,
        trials=partial(_read_trials, sorted(logs, key=lambda log: log.created_at, reverse=True), names),
        judges=judges,
        notes=[*notes, *_list_notes(facts, images), *separation_notes],
        scratch=(scratch, reading),
    )


def _build_condition(header: Log) -> StudyCondition:
    """Return the condition of a log. A retried log keeps the id of its task, and so its condition."""
    run, plan = header.get("eval") or {}, header.get("plan") or {}
    config = plan.get("config") or {}
    settings = {name: config[name] for name in SETTINGS if config.get(name) is not None}
    steps = [{"solver": step.get("solver"), "params": step.get("params")} for step in plan.get("steps") or []]
    identity = [run.get("model"), run.get("task"), run.get("task_id"), steps, config]
    model = str(run.get("model") or "unknown")
    system = [
        {"role": "system", "content": str(step["params"]["template"])}
        for step in steps
        if step["solver"] == "system_message" and (step["params"] or {}).get("template")
    ]
    turns = (*system, {"role": "user", "content": "{{input}}"})
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return StudyCondition(
        key=f"{model}-{digest}",
        **split_model(model),
        prompt=f"inspect-{run.get('task') or 'task'}".replace("/", "-")[:70],
        messages=turns,
        sampler="inspect-" + ("-".join(f"{name}-{value}" for name, value in settings.items()) or "default")[:60],
        settings=settings,
    )


def _show_image(turns: Sequence[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
    *before, last = turns
    return (*before, {**last, "content": "{{image}}" + last["content"]})


def _add_sample(where: str, condition: str, sample: Log, facts: LogFacts, folder: Path) -> None:
    """Add the facts of a sample, and write its image to the folder."""
    item, image = build_item(sample, where), read_image(sample)
    digest = hashlib.sha256(image).hexdigest() if image else ""
    earlier_item = facts.items.setdefault(item.key, item)
    earlier_digest = facts.images.setdefault(item.key, digest)
    if (earlier_item.input, earlier_item.target, earlier_digest) != (item.input, item.target, digest):
        raise StudyError([f"{where}: sample {item.key!r} has another input or target than in an earlier log"])
    if image:
        (folder / "images").mkdir(exist_ok=True)
        (folder / "images" / f"{digest}.png").write_bytes(image)  # The reader looks at the bytes, not at the suffix.
    else:
        facts.texts.add(condition)
    for name, models in list_judges(sample):
        facts.judges[condition, name] = models or facts.judges.get((condition, name), ())
        value = sample["scores"][name].get("value")
        values = value if isinstance(value, dict) else {"": value}
        facts.parts[condition, name].update(map(str, values))
        if any(part not in GRADES and part == part for part in values.values()):  # Without NaN, which is no score.
            facts.numbers.add((condition, name))
    calls, _ = list_calls(sample)
    messages = sample.get("messages") or []
    events = Counter(str(event.get("event")) for event in sample.get("events") or ())
    facts.counts["samples"] += 1
    facts.counts["several turns"] += sum(message.get("role") == "assistant" for message in messages) > 1
    facts.counts["several calls"] += len(calls) > 1
    facts.counts["no calls"] += not calls and not sample.get("error")
    facts.counts["repeated requests"] += sum(call.get("retries") or 0 for call in calls)
    facts.counts["unpriced"] += sum(build_call(call).cost_usd is None for call in calls)
    facts.events.update({kind: n for kind, n in events.items() if kind not in TAKEN_EVENTS})
    facts.left_out.update(kind for message in messages for kind in build_turn(message, sample).get("left_out", ()))
    if sample.get("limit"):
        facts.limits[str(sample["limit"].get("type"))] += 1


def _read_images(facts: LogFacts, folder: Path) -> tuple[dict[str, BufferedImage], object]:
    """Return the images by their hash in the log, decoded in the limited process. Those that it refuses are left out.

    The second value keeps their files.
    """
    digests = sorted(set(facts.images.values()) - {""})
    table = folder / "images.jsonl"
    for _ in range(2):
        table.write_text("".join(json.dumps({"key": digest, "image": f"{digest}.png"}) + "\n" for digest in digests))
        if not digests:
            break
        files = {"items": FileToRead(table, "images of the log"), "images": FileToRead(folder / "images", "images")}
        reading, _ = read_upload(files, {"key": "key", "image": "image", "input": ""})
        if reading.ok:
            return {item.key: item.image for item in reading.items if item.image}, reading
        refused = {remark.row for remark in reading.report.errors}
        digests = [digest for row, digest in enumerate(digests, start=1) if row not in refused]
    return {}, None


def _build_judges(facts: LogFacts, headers: Mapping[str, Log]) -> tuple[dict[str, StudyJudge], Judges]:
    """Return the judges by their scorer, and the names of the scorers.

    A name has the judge's models if the logs have several judges under it.
    """
    variants: dict[str, set[tuple[tuple[str, ...], str]]] = defaultdict(set)
    found: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {}
    for (condition, name), models in facts.judges.items():
        run = headers[condition].get("eval") or {}
        grader = (run.get("model_roles") or {}).get("grader")
        default = [part.get("model") for part in (grader if isinstance(grader, list) else [grader]) if part]
        found[condition, name] = models or tuple(map(str, default)) or (str(run.get("model")),), _hash_rubric(run, name)
        variants[name].add(found[condition, name])
    judges: dict[str, StudyJudge] = {}
    names: dict[tuple[str, str], str] = {}
    for (condition, name), (models, rubric_hash) in found.items():
        label = "+".join(model.rpartition("/")[2] for model in models)
        suffix = "" if len(variants[name]) == 1 else f"-{label}-{rubric_hash}".rstrip("-")
        names[condition, name] = name + suffix
        for part in facts.parts[condition, name]:
            judges[name_part(name + suffix, part)] = StudyJudge(
                label,
                StudyCondition(
                    key=name, **split_model(", ".join(models)), prompt=name_part(name, part), sampler="inspect-judge"
                ),
                rubric_hash=rubric_hash,
                scale=None if (condition, name) in facts.numbers else LETTERS,
            )
    return judges, names


def _hash_rubric(run: Log, name: str) -> str:
    """Return the hash of a judge's own template and instructions. Those of the tool are not in the log."""
    options = next((scorer.get("options") for scorer in run.get("scorers") or () if scorer.get("name") == name), None)
    own = {key: options[key] for key in ("template", "instructions") if (options or {}).get(key)} if options else {}
    return hash_content(own)[:12] if own else ""


def _read_trials(logs: Sequence[LogFile], judges: Judges) -> Iterator[StudyTrial]:
    """Yield the samples of the logs, newest log first: a retried log repeats samples, and has the later outcome."""
    identities = KeyIndex()
    for log in logs:
        for where, sample in read_samples(log.path):
            with refuse_unreadable(where):
                trial = build_trial(where, log.condition, sample, judges)
            if identities.add((log.condition, trial.item, trial.sample_idx)):
                yield trial


def _list_notes(facts: LogFacts, images: Mapping[str, BufferedImage]) -> Iterator[str]:
    counts, refused = facts.counts, len(set(facts.images.values()) - {""} - set(images))
    texts = {
        "several calls": "{} samples have several calls: each is an attempt, and usage and cost of a trial are sums.",
        "several turns": "{} samples have several turns: their trials have them all, the prompt only the first.",
        "no calls": "{} samples have no events: their usage and cost are those of the last call.",
        "repeated requests": "{} requests were repeated within a call: their cost is unknown.",
        "unpriced": "The cost of {} calls is unknown, because inspect_ai had no price.",
    }
    yield from (text.format(counts[reason]) for reason, text in texts.items() if counts[reason])
    if refused:
        yield f"{refused} images are not taken: they are no readable JPEG, PNG, WebP or GIF."
    if facts.left_out:
        yield f"Left out of messages: {_format_counts(facts.left_out)}. An item has one image, the first of its input."
    if facts.limits:
        yield f"{facts.limits.total()} samples ended at a limit: {_format_counts(facts.limits)}."
    if facts.events:
        yield f"Events that are not taken: {_format_counts(facts.events)}."
    if facts.judges:
        yield "The rubrics of judges are not in the logs, only their messages."


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.most_common())


INSPECT = StudyFormat(
    "inspect",
    "inspect_ai",
    is_inspect,
    read_inspect,
    content="a log, or a folder of logs: one study",
    suffixes=(".eval", ".json"),
)
