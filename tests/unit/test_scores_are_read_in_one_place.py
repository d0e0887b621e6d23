"""One rule decides whether scores are shares, and few places tell answers from judges' calls."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APPS = ("evalsite", "datasets_app", "runs_app", "grading_app")


def count_matches(pattern):
    """Return the number of matches by module, over Python and SQL."""
    files = [path for app in APPS for path in (ROOT / app).rglob("*") if path.suffix in (".py", ".sql")]
    counts = {str(path.relative_to(ROOT)): len(re.findall(pattern, path.read_text())) for path in files}
    return {path: n for path, n in counts.items() if n}


def test_one_place_decides_whether_all_scores_are_0_or_1():
    assert count_matches(r"\bIN\s*\(0, 1\)") == {"grading_app/results/scores.py": 1}


def test_few_places_tell_answers_from_calls_of_judges():
    """All other places read the view of answers, or the runs of `answer_runs` and `answering`."""
    assert 0 < sum(count_matches(r"\.generating\(\)").values()) <= 10
