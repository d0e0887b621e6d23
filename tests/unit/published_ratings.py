"""Published ratings, and hypothesis strategies for ratings, for the tests of agreement."""

import numpy as np
from hypothesis import strategies as st

NAN = np.nan

# K. Krippendorff (2011), "Computing Krippendorff's alpha-reliability", section D: four observers, twelve units.
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
).T

# P. E. Shrout & J. L. Fleiss (1979), Psychological Bulletin 86, table 2: six targets, four judges.
SHROUT_FLEISS = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]])

# J. L. Fleiss (1971), Psychological Bulletin 76, table 1: thirty patients, six psychiatrists each; depression,
# personality disorder, schizophrenia, neurosis, other. A row lists the six diagnoses of a patient.
DIAGNOSES = [
    "444444", "222555", "233335", "555555", "222444", "113333", "333355", "113334", "114444", "555555",
    "144444", "124444", "222333", "144444", "224445", "333335", "111455", "111112", "224444", "133555",
    "555555", "244444", "224555", "114444", "144445", "222224", "111155", "224444", "133333", "555555",
]  # fmt: skip


def expand_table(counts):
    """Return the ratings of two raters from a table of counts of their category pairs."""
    return [(row, column) for row, line in enumerate(counts) for column, count in enumerate(line) for _ in range(count)]


@st.composite
def tables(draw, raters=(2, 5), units=(2, 12), missing=True, top=5):
    """Return a strategy for tables of units x raters on a scale."""
    shape = draw(st.integers(*units)), draw(st.integers(*raters))
    values = st.integers(1, top)
    value = st.one_of(st.just(NAN), values, values, values) if missing else values
    size = shape[0] * shape[1]
    return np.array(draw(st.lists(value, min_size=size, max_size=size)), dtype=float).reshape(shape)
