"""Movies: the film that belongs with a group of films.

Specification. The facts come from a table of films with their genres and themes (`data/movies.csv`). One or two of
these properties are selected. `reference_count` films have all of them: `reference_count` - 1 are named in the question
and one is the target. The other options have none of the selected properties, and none of the properties that all named
films happen to share. So only the target shares a property with all of them. There are `choice_count` lettered options,
so a guess is correct with a probability of 1/`choice_count`. With `hints` the question names the selected properties.
The question has one of four wordings.

ReasonScape publishes reference and choice counts, hints, selection by genres and themes, options that match none, the
stored number of the wording, and one record: its `reference_count` of 4 shows three films. Our choices: the table,
equally likely properties (genre_weights and theme_weights are not offered), the other wordings, and the rule on
properties shared by accident.

A curator may replace the table: title, year, genres and themes, the last two as lists separated by "|". A title
contains no comma, because questions list titles. The hash of the table is part of a dataset's definition.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from io import StringIO
from itertools import combinations
from random import Random
from typing import NamedTuple

from datasets_app.generators.answer_rules import LETTER, format_options, list_letters
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param
from datasets_app.generators.vocabulary import DATA, join_phrases

FILMS = DATA / "movies.csv"
COLUMNS = ["title", "year", "genres", "themes"]
TEMPLATES = (
    "Which movie belongs with this group: {films}?",
    "Which movie is most similar to these: {films}?",
    "A viewer liked {films}. Which movie should the viewer watch next?",
    "Which of the options has most in common with {films}?",
)
MAX_DRAWS = 1000


class Film(NamedTuple):
    """A film with its properties. A property is a pair: "genre" or "theme", and its name."""

    title: str
    year: int
    properties: frozenset[tuple[str, str]]


Selection = tuple[tuple[tuple[str, str], ...], list[Film]]  # One or two properties, and the films that have them.


@dataclass(frozen=True, eq=False)
class FilmTable:
    """The films of one table. Lookups are cached as long as the table exists."""

    films: tuple[Film, ...]

    @lru_cache(maxsize=64)  # noqa: B019 - a process has one table, and tests have few.
    def list_selections(self, reference_count: int) -> list[Selection]:
        """Return every selection of one or two properties that at least `reference_count` films have."""
        matching: dict[tuple[tuple[str, str], ...], list[Film]] = {}
        for film in self.films:
            names = sorted(film.properties)
            for choice in [*((name,) for name in names), *combinations(names, 2)]:
                matching.setdefault(choice, []).append(film)
        selections = sorted(matching.items(), key=lambda selection: (len(selection[0]), selection[0]))
        return [(choice, films) for choice, films in selections if len(films) >= reference_count]

    @lru_cache(maxsize=4096)  # noqa: B019
    def list_films_without(self, properties: frozenset[tuple[str, str]]) -> list[Film]:
        """Return the films that have none of the properties."""
        return [film for film in self.films if properties.isdisjoint(film.properties)]


class FilmsError(ValueError):
    """An invalid table of films. The message names the row."""


class MoviesParams(Params):
    reference_count: int = declare_param(
        4, "Number of matching films, including the right option.", harder="lower", ge=2, le=8
    )
    choice_count: int = declare_param(4, "Number of options.", harder="higher", ge=2, le=10)
    hints: bool = declare_param(False, "Whether the question names what the films have in common.", harder="lower")


def read_films(text: str) -> tuple[Film, ...]:
    """Return the films of a CSV table. Raise FilmsError, which names the row."""
    rows = list(csv.reader(StringIO(text)))
    if not rows or rows[0] != COLUMNS:
        raise FilmsError(f"row 1: the columns are {', '.join(COLUMNS)}")
    films = [_read_film(number, row) for number, row in enumerate(rows[1:], 2) if row]
    titles = [film.title for film in films]
    duplicates = sorted({title for title in titles if titles.count(title) > 1})
    if duplicates:
        raise FilmsError(f"the title {duplicates[0]!r} occurs twice")
    return tuple(films)


def _read_film(number: int, row: Sequence[str]) -> Film:
    if len(row) != len(COLUMNS):
        raise FilmsError(f"row {number}: {len(row)} fields instead of {len(COLUMNS)}")
    title, year, genres, themes = (value.strip() for value in row)
    if not title or "," in title or "\n" in title:
        raise FilmsError(f"row {number}: a title is one line without a comma, not {title!r}")
    if not (year.isascii() and year.isdigit() and 1870 <= int(year) <= 2100):
        raise FilmsError(f"row {number}: {year!r} is not a year")
    properties = [("genre", name.strip()) for name in genres.split("|")]
    properties += [("theme", name.strip()) for name in themes.split("|")]
    return Film(title, int(year), frozenset(pair for pair in properties if pair[1]))


@cache
def load_installed_films() -> FilmTable:
    """Return the films of the installed table."""
    return FilmTable(read_films(FILMS.read_text(encoding="utf-8")))


def hash_films() -> str:
    """Return the SHA-256 of the installed table."""
    return hashlib.sha256(FILMS.read_bytes()).hexdigest()


def draw(params: MoviesParams, rng: Random) -> Case:
    return draw_from(load_installed_films(), params, rng)


def draw_from(table: FilmTable, params: MoviesParams, rng: Random) -> Case:
    """Return a case from these films. Raise FilmsError if they are too few or too similar."""
    selections = table.list_selections(params.reference_count)
    for _ in range(MAX_DRAWS if selections else 0):
        properties, matching = rng.choice(selections)
        *reference_films, target = rng.sample(matching, params.reference_count)
        common_properties = frozenset.intersection(*(film.properties for film in reference_films))
        candidates = table.list_films_without(common_properties)
        if len(candidates) >= params.choice_count - 1:
            options = [target, *rng.sample(candidates, params.choice_count - 1)]
            rng.shuffle(options)
            template = rng.randrange(len(TEMPLATES))
            titles = [film.title for film in options]
            question = TEMPLATES[template].format(films=", ".join(film.title for film in reference_films))
            if params.hints:
                question += (
                    f"\nHint: they have in common {join_phrases([f'the {kind} {name}' for kind, name in properties])}."
                )
            choices = list_letters(len(options))
            facts = {
                "reference_movies": [film.title for film in reference_films],
                "choices": titles,
                "selected_genres": [name for kind, name in properties if kind == "genre"],
                "selected_themes": [name for kind, name in properties if kind == "theme"],
                "template": template,
            }
            return Case(f"{question}\n\n{format_options(titles)}", choices[options.index(target)], choices, facts)
    raise FilmsError("the table has too few films, or too similar ones, for these parameters")


def explain(case: Case) -> str:
    """Return the selected properties and the option that has them."""
    facts = case.genresult
    common = join_phrases(facts["selected_genres"] + facts["selected_themes"])
    title = facts["choices"][case.choices.index(case.target)] if case.choices else ""
    return f"{join_phrases(facts['reference_movies'])}: {common}.\nOf the options, only {case.target} {title} has this."


GENERATOR = Generator(
    name="movies",
    title="Movie recommendation",
    version=2,
    params=MoviesParams,
    draw=draw,
    earlier={1: Edition(draw, is_distinct=False)},
    explain=explain,
    instructions=Instructions(
        "Given a list of movies a user has watched and liked, recommend a similar film.", "(A) - (Z)"
    ),
    answer=LETTER,
    data_hash=hash_films,
)
