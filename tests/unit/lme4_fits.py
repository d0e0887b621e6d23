"""The fits of lme4 in `lme4/`, which `lme4/fit.R` wrote: answers of published and drawn data, and the values of R."""

from pathlib import Path

import numpy as np
import pandas as pd

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
)


def read_fit(name):
    """Return the effects with treatment coding, their errors, the standard deviations, and chi2 as [value]."""
    rows = pd.read_csv(FOLDER / "fits.csv")
    return {key: group.value.tolist() for key, group in rows[rows.set == name].groupby("name")}


def read_answers(name):
    """Return the right answers and all answers, (items, conditions) each. 0 of 0 is a missing cell."""
    rows = pd.read_csv(FOLDER / "answers.csv")
    rows = rows[rows.set == ("cbpp" if name == "cbpp_cells" else name)]
    right, n = np.zeros((2, rows.item.nunique(), rows.condition.nunique()))
    cell = pd.factorize(rows.item)[0], rows.condition - 1
    right[cell], n[cell] = rows.right, rows.n
    return right, n


def code_treatment(conditions):
    """Return the design with a constant and the difference of each other condition from the first."""
    return np.hstack([np.ones((conditions, 1)), np.eye(conditions)[:, 1:]])
