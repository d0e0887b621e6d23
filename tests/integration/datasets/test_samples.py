"""The shipped samples: complete, small and correct."""

import csv
import datetime
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from datasets_app.importing import read_items, read_norms
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import read_space
from runs_app.experiment_files.spec_reader import read_yaml
from runs_app.simulator.skill_profiles import read_profiles

SAMPLES = Path(__file__).resolve().parents[3] / "samples"


@pytest.fixture(scope="module")
def photographs():
    return read_items(SAMPLES / "photographs.csv", images=SAMPLES / "photographs")


@pytest.fixture(scope="module")
def questions():
    return {item.key: item for item in read_items(SAMPLES / "questions.jsonl").items}


def test_the_photographs_import_without_warnings(photographs):
    assert photographs.errors == photographs.warnings == []
    assert Counter(item.category for item in photographs.items) == dict(Animal=8, Object=8, Person=8, Scene=8)
    assert len({item.image.sha256 for item in photographs.items}) == 32


def test_every_photograph_names_its_source():
    with (SAMPLES / "photographs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["licence"] for row in rows} == {"CC0", "public domain"}
    assert all(row["source"] and row["caption"] for row in rows)
    assert {row["file"] for row in rows} == {path.name for path in (SAMPLES / "photographs").iterdir()}


def test_the_norms_match_the_photographs_and_are_marked_as_invented(photographs):
    reading = read_norms(SAMPLES / "norms.csv", {item.key: item.category for item in photographs.items})
    assert (reading.report.errors, reading.report.warnings) == ([], [])
    assert len(reading.norms) == 2 * 32
    assert all(1 <= norm.mean <= 7 for norm in reading.norms)
    with (SAMPLES / "norms.csv").open(newline="") as file:
        assert {row["source"] for row in csv.DictReader(file)} == {"made up for demonstration"}


def test_the_folder_is_small():
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 2_500_000


def test_the_questions_import_without_warnings():
    reading = read_items(SAMPLES / "questions.jsonl")
    assert reading.errors == reading.warnings == []
    assert len(reading.items) == 64
    assert set(Counter(item.category for item in reading.items).values()) == {16}
    assert 24 <= sum(bool(item.choices) for item in reading.items) <= 40


def smallest_prime_above(number: int) -> int:
    candidate = number + 1
    while any(candidate % divisor == 0 for divisor in range(2, candidate)):
        candidate += 1
    return candidate


WORKED_OUT = {
    "arithmetic-01": 17 + 26,
    "arithmetic-02": 4 * 12 + 3 * 7,
    "arithmetic-03": Fraction(15, 100) * 240,
    "arithmetic-04": Fraction(144, 12) * 5,
    "arithmetic-05": (datetime.timedelta(hours=13, minutes=5) - datetime.timedelta(hours=9, minutes=40)).seconds // 60,
    "arithmetic-06": smallest_prime_above(90),
    "arithmetic-07": Fraction(450, 6) * 10,
    "arithmetic-08": 2**10 - 10**2,
    "arithmetic-09": sum(range(1, 41)),
    "arithmetic-10": 50 * Fraction(120, 100) * Fraction(80, 100),
    "geography-16": 360 // 24,
    "science-13": Fraction(150) / Fraction(5, 2),
    "science-14": 3 * 4,
    "science-16": 80 * Fraction(1, 2) ** (15 // 5),
    "logic-09": 6 * 7,  # 1 x 2, 2 x 3, 3 x 4, ...
    "logic-10": 5 + 8,
    "logic-11": "strawberry".count("r"),
    "logic-12": "lamp"[::-1],
    "logic-14": (datetime.date(2024, 1, 1) + datetime.timedelta(days=100)).strftime("%A"),  # 1 January was a Monday.
    "logic-15": sum(letter in "aeiou" for letter in "education"),
}
CHOSEN = {
    "arithmetic-11": max("3/5", "5/8", "7/12", "2/3", key=Fraction),
    "arithmetic-12": 7 * 8 - 6 * 9,
    "arithmetic-13": 100 % 7,
    "arithmetic-14": 4 * 9,
    "arithmetic-15": 4 * 360 // 12,
    "arithmetic-16": (8 + 12 + 19 + 21) // 4,
}


@pytest.mark.parametrize("key", WORKED_OUT)
def test_answers_are_right(questions, key):
    assert questions[key].target == str(WORKED_OUT[key])


@pytest.mark.parametrize("key", CHOSEN)
def test_the_letter_is_that_of_the_right_choice(questions, key):
    item = questions[key]
    assert item.choices["ABCD".index(item.target)] == str(CHOSEN[key])


def test_the_days_and_the_anagram_are_right(questions):
    thursday = datetime.date(2024, 1, 4)
    assert questions["logic-13"].target == (thursday + datetime.timedelta(days=3)).strftime("%A")
    assert sorted(questions["logic-16"].target) == sorted("listen")


def test_right_choices_are_spread_over_the_letters(questions):
    letters = Counter(item.target for item in questions.values() if item.choices)
    assert set(letters) == set("ABCD")
    assert max(letters.values()) <= 10


@pytest.mark.parametrize("name", ["affect-pilot", "questions-pilot", "drift-pilot"])
def test_the_experiment_files_name_the_samples(name):
    design = read_yaml((SAMPLES / f"{name}.yaml").read_text())
    assert design.experiment == name
    assert design.dataset in {"photographs@1", "questions@1"}
    assert {model.endpoint for model in design.models} == {"rehearsal"}


@pytest.mark.slow
def test_the_drawings_are_reproducible(monkeypatch):
    monkeypatch.syspath_prepend(str(SAMPLES))
    from drawings import DRAWINGS  # type: ignore[import-not-found]
    from PIL import Image, ImageChops, ImageStat

    for name, draw in DRAWINGS.items():
        with Image.open(SAMPLES / "photographs" / f"{name}.jpg") as shipped:
            difference = ImageChops.difference(shipped.convert("RGB"), draw())
        assert max(ImageStat.Stat(difference).mean) < 4, name


def test_questions_are_json_lines_in_order():
    rows = [json.loads(line) for line in (SAMPLES / "questions.jsonl").read_text().splitlines()]
    assert all({"id", "question", "answer", "category", "difficulty"} <= set(row) for row in rows)
    assert {row["difficulty"] for row in rows} == {1, 2, 3}


def test_the_space_is_small_and_both_simulated_models_have_a_skill_at_each_point():
    space = resolve_space(read_space((SAMPLES / "reasoning-space.yaml").read_text()))
    assert (len(space.spec.tasks), len(space.points)) == (3, 27)
    assert space.max_cases < 1500
    profiles = read_profiles(SAMPLES / "reasoning-skills.json")
    assert set(profiles) == {"sim-large", "sim-small"}
    for profile in profiles.values():
        skills = [profile.skill(point.base_task, point.params) for point in space.points]
        assert min(skills) < 0.7 < 0.9 < max(skills)
