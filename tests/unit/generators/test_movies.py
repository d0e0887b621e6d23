"""The second solver looks up the titles of the text in the table; the table is the shared knowledge."""

import csv
import re
from functools import cache
from random import Random

import pytest

from datasets_app.generators.movies import FILMS, FilmsError, FilmTable, MoviesParams, draw_from, hash_films, read_films
from datasets_app.generators.registry import get_generator
from tests.unit.generators.solving import check, generate_cases, over_points

SEED_INPUT = (
    "Which movie belongs with this group: 12 Years a Slave, Braveheart, Ford v Ferrari?\n\n"
    "Options:\n(A) Dark Phoenix\n(B) The Incredible Hulk\n(C) Hacksaw Ridge"
)


LISTED = re.compile(
    r"(?:this group: |similar to these: |viewer liked |in common with )(.*?)(?:\?|\. Which movie should)"
)


@cache
def read_facts():
    with FILMS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["title"]: list_properties(row["genres"], "g") | list_properties(row["themes"], "t") for row in rows}


def list_properties(names, kind):
    return {f"{kind}:{name}" for name in names.split("|")}


def solve(text):
    films = read_facts()
    question, options = text.split("\n\nOptions:\n")
    listed = LISTED.search(question.split("\n")[0])[1]
    shared = set.intersection(*(films[title] for title in listed.split(", ")))
    by_letter = dict(line.split(" ", 1) for line in options.split("\n"))
    (right,) = [letter for letter, title in by_letter.items() if shared & films[title]]
    return right


@over_points("movies")
def test_only_the_target_shares_a_property_with_all_named_films(values, seed):
    check("movies", solve, values, seed)


def test_the_published_record_has_this_form_and_this_answer():
    """The record: reference_count 4 shows three films, choice_count 3 gives a guess chance of 1/3."""
    assert solve(SEED_INPUT) == "(C)"
    cases = generate_cases("movies", {"reference_count": 4, "choice_count": 3, "count": 128}, count=40)
    case = next(case for case in cases if case.genresult["template"] == 0)
    question, options = case.input.split("\n\n")
    assert re.fullmatch(r"Which movie belongs with this group: [^,]+, [^,]+, [^,]+\?", question)
    assert re.fullmatch(r"Options:\n\(A\) .+\n\(B\) .+\n\(C\) .+", options)
    assert float(case.guess_chance) == 0.3333333333333333
    assert case.choices == ("(A)", "(B)", "(C)")
    assert case.genresult.keys() >= {"reference_movies", "choices", "selected_genres", "selected_themes"}


def test_the_published_message_is_the_instruction_and_the_question():
    message = f"{get_generator('movies').instructions.stepwise}\n{SEED_INPUT}"
    assert message.startswith(
        "Given a list of movies a user has watched and liked, recommend a similar film. Think step by step, then "
        "respond with Final Answer: (A) - (Z)\nWhich movie belongs with this group: 12 Years a Slave"
    )


def test_only_named_films_and_the_target_have_the_selected_properties():
    films = read_facts()
    for case in generate_cases("movies", {"reference_count": 3, "choice_count": 6}, count=50):
        record = case.genresult
        selected = {f"g:{name}" for name in record["selected_genres"]} | {
            f"t:{name}" for name in record["selected_themes"]
        }
        right = record["choices"][case.choices.index(case.target)]
        assert all(selected <= films[title] for title in [*record["reference_movies"], right])
        assert not any(selected & films[title] for title in record["choices"] if title != right)


def test_hints_name_the_shared_properties_of_the_films():
    for case in generate_cases("movies", {"hints": True}, count=20):
        selected = case.genresult["selected_genres"] + case.genresult["selected_themes"]
        hint = case.input.split("\n")[1]
        assert hint.startswith("Hint: they have in common ")
        assert all(name in hint for name in selected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,year\n", "row 1: the columns are title, year, genres, themes"),
        ("title,year,genres,themes\nAlien,1979,Horror\n", "row 2: 3 fields instead of 4"),
        ('title,year,genres,themes\n"Good, Bad",1966,Western,\n', "row 2: a title is one line without a comma"),
        ("title,year,genres,themes\nAlien,soon,Horror,\n", "row 2: 'soon' is not a year"),
        ("title,year,genres,themes\nAlien,1979,Horror,\nAlien,1979,Horror,\n", "'Alien' occurs twice"),
    ],
)
def test_an_invalid_table_is_refused_with_its_row(text, message):
    with pytest.raises(FilmsError, match=message):
        read_films(text)


def test_a_table_with_too_few_films_is_refused():
    films = FilmTable(read_films("title,year,genres,themes\nAlien,1979,Horror,\nJaws,1975,Horror,\n"))
    with pytest.raises(FilmsError, match="too few films"):
        draw_from(films, MoviesParams(reference_count=2), Random(1))


def test_the_definition_names_the_table_by_its_hash():
    assert get_generator("movies").definition() == {"task": "movies", "version": 2, "data": hash_films()}
    assert len(hash_films()) == 64
