"""References: a source for each statistic that the sections before use, found by the words of their tables."""

from __future__ import annotations

from collections.abc import Iterator

from grading_app.publish.report.document import (
    Block,
    FigureBlock,
    Listing,
    Paragraph,
    ReportSection,
    Span,
    TableBlock,
    make_paragraph,
)
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import join_words
from grading_app.statistics.measures import MEASURE_DESCRIPTIONS

SHROUT_AND_FLEISS = (
    "P. E. Shrout & J. L. Fleiss (1979), Intraclass correlations: uses in assessing rater reliability, Psychological "
    "Bulletin 86, 420–428"
)
REFERENCES: tuple[tuple[str, str, str], ...] = (
    ("Wilson", "Wilson's interval of a share", "E. B. Wilson (1927), Probable inference, the law of succession, and "
     "statistical inference, Journal of the American Statistical Association 22, 209–212; L. D. Brown, T. T. Cai & A. "
     "DasGupta (2001), Interval estimation for a binomial proportion, Statistical Science 16, 101–133"),
    ("effective n", "The effective number of answers", "E. L. Korn & B. I. Graubard (1998), Confidence intervals for "
     "proportions with small expected number of positive counts estimated from survey data, Survey Methodology 24, "
     "193–201"),
    ("score interval", "The score interval of a mean on a scale", "Wilson's interval (1927) of the mean's share of the "
     "scale, at the effective number of answers of Korn & Graubard (1998), and an item added at each end of the scale"),
    ("gaffke", "Gaffke's bounded interval", "N. Gaffke (2005), Three test statistics for a nonparametric one-sided "
     "hypothesis on the mean of a nonnegative variable, Mathematical Methods of Statistics 14, 451–467; E. "
     "Learned-Miller & P. S. Thomas (2019), A new confidence interval for the mean of a bounded random variable, "
     "arXiv:1905.06208"),
    ("cluster", "Standard errors clustered by item", "K.-Y. Liang & S. L. Zeger (1986), Longitudinal data analysis "
     "using generalized linear models, Biometrika 73, 13–22"),
    ("holm", "Holm's correction", "S. Holm (1979), A simple sequentially rejective multiple test procedure, "
     "Scandinavian Journal of Statistics 6, 65–70"),
    ("benjamini", "The false discovery rate", "Y. Benjamini & Y. Hochberg (1995), Controlling the false discovery "
     "rate: a practical and powerful approach to multiple testing, Journal of the Royal Statistical Society B 57, "
     "289–300"),
    ("student's t", "Student's t", "Student (1908), The probable error of a mean, Biometrika 6, 1–25"),
    ("paired t", "Student's t", "Student (1908), The probable error of a mean, Biometrika 6, 1–25"),
    ("wilcoxon", "Wilcoxon's signed-rank test", "F. Wilcoxon (1945), Individual comparisons by ranking methods, "
     "Biometrics Bulletin 1, 80–83"),
    ("permutation", "Permutation tests", "R. A. Fisher (1935), The Design of Experiments"),
    ("sign-flip", "The sign-flip test", "R. A. Fisher (1935), The Design of Experiments; J. A. Hartigan (1969), Using "
     "subsample values as typical values, Journal of the American Statistical Association 64, 1303–1317"),
    ("mcnemar", "McNemar's test", "Q. McNemar (1947), Note on the sampling error of the difference between correlated "
     "proportions or percentages, Psychometrika 12, 153–157"),
    ("tango", "Tango's score interval", "T. Tango (1998), Equivalence test and confidence interval for the difference "
     "in proportions for the paired-sample design, Statistics in Medicine 17, 891–908"),
    ("welch", "Welch's test", "B. L. Welch (1947), The generalization of 'Student's' problem when several different "
     "population variances are involved, Biometrika 34, 28–35"),
    ("cohen's d", "Cohen's d", "J. Cohen (1988), Statistical Power Analysis for the Behavioral Sciences, 2nd edition"),
    ("fisher's and the jackknife's for r", "Fisher's interval of a correlation", "R. A. Fisher (1921), On the "
     "'probable error' of a coefficient of correlation deduced from a small sample, Metron 1, 3–32"),
    ("jackknife", "The jackknife", "R. G. Miller (1974), The jackknife: a review, Biometrika 61, 1–15"),
    ("bonett and wright", "The interval of Spearman's rho", "D. G. Bonett & T. A. Wright (2000), Sample size "
     "requirements for estimating Pearson, Kendall and Spearman correlations, Psychometrika 65, 23–28"),
    ("spearman's rho", "Spearman's rho", "C. Spearman (1904), The proof and measurement of association between two "
     "things, American Journal of Psychology 15, 72–101"),
    ("lin's", "Lin's concordance coefficient", "L. I.-K. Lin (1989), A concordance correlation coefficient to evaluate "
     "reproducibility, Biometrics 45, 255–268"),
    ("icc(", "Intraclass correlations", SHROUT_AND_FLEISS),
    ("intraclass", "Intraclass correlations", SHROUT_AND_FLEISS),
    ("spearman and brown", "Spearman and Brown's formula", "C. Spearman (1910), Correlation calculated from faulty "
     "data, British Journal of Psychology 3, 271–295; W. Brown (1910), Some experimental results in the correlation of "
     "mental abilities, British Journal of Psychology 3, 296–322"),
    ("bland", "Limits of agreement", "J. M. Bland & D. G. Altman (1986), Statistical methods for assessing agreement "
     "between two methods of clinical measurement, The Lancet 327, 307–310"),
    ("calibration", "Expected calibration error", "M. P. Naeini, G. F. Cooper & M. Hauskrecht (2015), Obtaining well "
     "calibrated probabilities using Bayesian binning, Proceedings of AAAI 29, 2901–2907"),
)  # fmt: skip
"""For a word in the texts of the report, in lower case: the statistic that it stands for, and its source."""


FULL = (
    "J. Cohen (1960), A coefficient of agreement for nominal scales, Educational and Psychological Measurement 20, "
    "37–46",
    "J. Cohen (1968), Weighted kappa: nominal scale agreement with provision for scaled disagreement or partial "
    "credit, Psychological Bulletin 70, 213–220",
    "J. L. Fleiss (1971), Measuring nominal scale agreement among many raters, Psychological Bulletin 76, 378–382",
    "K. O. McGraw & S. P. Wong (1996), Forming inferences about some intraclass correlation coefficients, "
    "Psychological Methods 1, 30–46",
    "K. L. Gwet (2014), Handbook of Inter-Rater Reliability, 4th edition",
    "M. G. Kendall (1948), Rank Correlation Methods",
    *(reference for _, _, references in REFERENCES for reference in references.split("; ")),
)
"""The works that this module and the measures of agreement cite, with their titles."""


def write_references(source: ReportSource) -> list[Block | None]:
    words = "\n".join(text for section in source.sections for text in _list_texts(section))
    lower_words = words.lower()
    citations = [(statistic, reference) for word, statistic, reference in REFERENCES if word.lower() in lower_words]
    citations += [(name, description.citation) for name, description in MEASURE_DESCRIPTIONS.items() if name in words]
    if not citations:
        return [make_paragraph("The report uses no statistic that needs a reference.", tone="note")]
    titles = {_identify(reference): reference for reference in FULL}
    by_work: dict[str, list[str]] = {}
    for statistic, references in dict.fromkeys(citations):
        for reference in references.split("; "):
            by_work.setdefault(titles.get(_identify(reference), reference), []).append(statistic)
    entries = [(join_words(list(dict.fromkeys(names))), reference) for reference, names in by_work.items()]
    return [Listing([[Span(f"{statistic}: ", strong=True), Span(f"{reference}.")] for statistic, reference in entries])]


def _identify(reference: str) -> str:
    """Return the authors and the year of a reference."""
    return reference.partition(")")[0]


def _list_texts(section: ReportSection) -> Iterator[str]:
    """Yield the texts that name statistics: those of sentences, of tables and of captions. Names of rows are among
    them only where a table lists measures or tests."""
    for block in section.blocks:
        if isinstance(block, Paragraph) and section.name != "question":
            yield from (span.text for span in block.spans)
        if isinstance(block, FigureBlock):
            yield f"{block.title}. {block.caption}"
        if isinstance(block, TableBlock) and section.name in ("results", "agreement"):
            table = block.shown_table
            yield " ".join((table.formula, table.test, table.correction, *table.notes))
            yield from (column.label for column in table.columns)
            yield from (str(row[name]) for row in block.table.rows for name in ("test", "measure") if row.get(name))
