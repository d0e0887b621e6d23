"""Recorded answers of real models, beside the checkout; they are not part of the project."""

import csv
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"


def recorded(name):
    """The path of a recorded file; skips the test where it is missing."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the recorded answers of {name} are not beside this checkout ({FOLDER})")
    return path


def csv_rows(name):
    with recorded(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def json_lines(name):
    return [json.loads(line) for line in recorded(name).read_text(encoding="utf-8").splitlines()]
