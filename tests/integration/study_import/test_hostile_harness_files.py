"""Files of other harnesses with one value of another type: read, or refused with a sentence."""

import json
import random
import zipfile
from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from grading_app.study_import.importers import read_source
from grading_app.study_import.study import StudyError
from grading_app.study_import.study_checks import check_design, check_trial
from grading_app.study_import.study_files import Study

HERE = Path(__file__).parent
VALUES = [
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    "\x00",
    [],
    [[]],
    [None],
    {},
    {"a": {}},
]
INSTANCES = 6
CHANGES = 60  # For the files of one name, which a format may have once for each run.


def list_places(value, path=()):
    """Yield the paths of all values in a JSON document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield (*path, name)
        yield from list_places(part, (*path, name))


def change_value(document, path, value):
    target = document
    for name in path[:-1]:
        target = target[name]
    if value == "remove":
        del target[path[-1]]
    else:
        target[path[-1]] = value


def write_changed_copies(file, chance, changes):
    """Yield after each change of one value in the file. A file of lines is changed in one of its first lines."""
    original = file.read_text()
    is_lines = file.suffix == ".jsonl"
    lines = original.splitlines() if is_lines else [original]
    places = [list(list_places(json.loads(line))) for line in lines[:4]]
    for _ in range(changes):
        number = chance.randrange(len(places))
        document = json.loads(lines[number])
        path = chance.choice(places[number])
        value = chance.choice([*VALUES, "remove"])
        change_value(document, path, value)
        changed = [*lines]
        changed[number] = json.dumps(document)
        file.write_text("\n".join(changed) + "\n" * is_lines)
        yield f"{file.name}, line {number + 1}: {path} = {value!r}"
    file.write_text(original)


def shorten_runs(folder):
    """Keep the first instances of each run of HELM. The others have the same shape, and each change reads all."""
    for file in folder.rglob("*.json"):
        content = json.loads(file.read_text())
        if file.name == "scenario_state.json":
            content["request_states"] = content["request_states"][:INSTANCES]
        elif file.name == "per_instance_stats.json":
            content = content[:INSTANCES]
        file.write_text(json.dumps(content))


def copy_samples(name, folder):
    source = HERE / name
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive:
            archive.extractall(folder)
        shorten_runs(folder)
    elif source.suffix == ".eval":
        with zipfile.ZipFile(source) as archive:
            samples = [json.loads(archive.read(name)) for name in archive.namelist() if name.startswith("samples/")]
            log = json.loads(archive.read("header.json")) | {"samples": samples}
        (folder / "log.json").write_text(json.dumps(log))
    else:
        for file in [source] if source.is_file() else source.rglob("*.json*"):
            (folder / file.name).write_text(file.read_text())


DESIGNS = {
    "promptfoo/promptfooconfig.yaml": ["promptfoo/promptfooconfig.yaml"],
    "openai_evals/registry/evals/capitals.yaml": ["openai_evals/registry/data/capitals/samples.jsonl"],
    "hub_eval/eval.yaml": ["hub_eval/test.jsonl"],
}


@pytest.mark.parametrize("name", DESIGNS)
def test_a_design_with_a_value_of_another_type_is_read_or_refused_with_a_sentence(name, tmp_path):
    original, chance, results = (HERE / name).read_text(), random.Random(5), Counter()
    for other in DESIGNS[name]:
        (tmp_path / Path(other).name).write_bytes((HERE / other).read_bytes())
    path = tmp_path / Path(name).name
    design = yaml.safe_load(original)
    places = list(list_places(design))
    for _ in range(150):
        document, place = deepcopy(design), chance.choice(places)
        change_value(document, place, chance.choice([*VALUES, "remove"]))
        path.write_text(json.dumps(document))
        try:
            results[type(read_source(tmp_path)).__name__] += 1
        except StudyError:
            results["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{place}: {type(error).__name__}: {error}") from error
    assert results["StudyDesign"] > 30
    assert results["refused"] > 0


def read_whole(path):
    source = read_source(path)
    if isinstance(source, Study):
        check_design(source)
        for trial in source.trials():
            check_trial(trial)


@pytest.mark.parametrize(
    "name",
    [
        "lm_eval",
        "promptfoo/results.json",
        "openai_evals/capitals-graded.jsonl",
        "helm/runs.zip",
        "every_eval_ever",
        "label_studio",
        "logs/talks.eval",
    ],
)
def test_a_value_of_another_type_is_read_or_refused_with_a_sentence(name, tmp_path):
    copy_samples(name, tmp_path)
    read_whole(tmp_path)
    chance, refused = random.Random(3), 0
    files = sorted(file for file in tmp_path.rglob("*.json*") if file.is_file())
    same_names = Counter(file.name for file in files)
    for file in files:
        for change in write_changed_copies(file, chance, CHANGES // same_names[file.name]):
            try:
                read_whole(tmp_path)
            except StudyError:
                refused += 1
            except Exception as error:
                raise AssertionError(f"{change}: {type(error).__name__}: {error}") from error
    assert refused
