"""References: a source for each statistic that the sections before use, found by the words of their tables."""

from __future__ import annotations

from collections.abc import Iterator

from grading_app.comparison.measure_descriptions import MEASURE_DESCRIPTIONS
from grading_app.study_report.document import (
    Block,
    FigureBlock,
    Listing,
    Paragraph,
    Section,
    Span,
    TableBlock,
    paragraph,
)
from grading_app.study_report.report_source import ReportSource
from grading_app.study_report.words import join_words

REFERENCES: tuple[tuple[str, str, str], ...] = (
    ("Wilson", "Wilson's interval of a share", "E. B. Wilson (1927), Journal of the American Statistical Association "
     "22, 209-212; L. D. Brown, T. T. Cai & A. DasGupta (2001), Statistical Science 16, 101-133"),
    ("effective n", "The effective number of answers", "E. L. Korn & B. I. Graubard (1998), Survey Methodology 24, "
     "193-201"),
    ("score interval", "The score interval of a mean on a scale", "D. G. Bonett & R. M. Price (2012), Journal of "
     "Educational and Behavioral Statistics 37, 479-488"),
    ("cluster", "Standard errors clustered by item", "K.-Y. Liang & S. L. Zeger (1986), Biometrika 73, 13-22"),
    ("holm", "Holm's correction", "S. Holm (1979), Scandinavian Journal of Statistics 6, 65-70"),
    ("benjamini", "The false discovery rate", "Y. Benjamini & Y. Hochberg (1995), Journal of the Royal Statistical "
     "Society B 57, 289-300"),
    ("wilcoxon", "Wilcoxon's signed-rank test", "F. Wilcoxon (1945), Biometrics Bulletin 1, 80-83"),
    ("permutation", "Permutation tests", "R. A. Fisher (1935), The Design of Experiments"),
    ("sign-flip", "The sign-flip test", "R. A. Fisher (1935), The Design of Experiments; J. A. Hartigan (1969), "
     "Journal of the American Statistical Association 64, 1303-1317"),
    ("mcnemar", "McNemar's test", "Q. McNemar (1947), Psychometrika 12, 153-157"),
    ("tango", "Tango's score interval", "T. Tango (1998), Statistics in Medicine 17, 891-908"),
    ("welch", "Welch's test", "B. L. Welch (1947), Biometrika 34, 28-35"),
    ("cohen's d", "Cohen's d", "J. Cohen (1988), Statistical Power Analysis for the Behavioral Sciences"),
    ("fisher's for r", "Fisher's interval of a correlation", "R. A. Fisher (1921), Metron 1, 3-32"),
    ("bonett and wright", "The interval of Spearman's rho", "D. G. Bonett & T. A. Wright (2000), Psychometrika 65, "
     "23-28"),
    ("spearman's rho", "Spearman's rho", "C. Spearman (1904), American Journal of Psychology 15, 72-101"),
    ("lin's", "Lin's concordance coefficient", "L. I.-K. Lin (1989), Biometrics 45, 255-268"),
    ("icc(", "Intraclass correlations", "P. E. Shrout & J. L. Fleiss (1979), Psychological Bulletin 86, 420-428"),
    ("intraclass", "Intraclass correlations", "P. E. Shrout & J. L. Fleiss (1979), Psychological Bulletin 86, 420-428"),
    ("spearman and brown", "Spearman and Brown's formula", "C. Spearman (1910), British Journal of Psychology 3, "
     "271-295; W. Brown (1910), British Journal of Psychology 3, 296-322"),
    ("bland", "Limits of agreement", "J. M. Bland & D. G. Altman (1986), The Lancet 327, 307-310"),
    ("calibration", "Expected calibration error", "M. P. Naeini, G. F. Cooper & M. Hauskrecht (2015), Proceedings of "
     "AAAI 29, 2901-2907"),
)  # fmt: skip


def blocks(source: ReportSource) -> list[Block | None]:
    words = "\n".join(text for section in source.built for text in _texts(section))
    lowered = words.lower()
    found = [(what, reference) for word, what, reference in REFERENCES if word.lower() in lowered]
    found += [(name, one.citation) for name, one in MEASURE_DESCRIPTIONS.items() if name in words]
    by_source: dict[str, list[str]] = {}
    for what, reference in dict.fromkeys(found):
        by_source.setdefault(reference, []).append(what)
    if not found:
        return [paragraph("The report uses no statistic that needs a reference.", tone="note")]
    named = [(join_words(names), reference) for reference, names in by_source.items()]
    return [Listing([[Span(f"{what}: ", strong=True), Span(f"{reference}.")] for what, reference in named])]


def _texts(section: Section) -> Iterator[str]:
    """Yield the texts that name statistics: those of sentences, of tables and of captions. Names of rows are among
    them only where a table lists measures or tests."""
    for block in section.blocks:
        if isinstance(block, Paragraph) and section.name != "question":
            yield from (one.text for one in block.spans)
        if isinstance(block, FigureBlock):
            yield f"{block.title}. {block.caption}"
        if isinstance(block, TableBlock) and section.name in ("results", "agreement"):
            table = block.shown_table
            yield " ".join((table.formula, table.test, table.correction, *table.notes))
            yield from (column.label for column in table.columns)
            yield from (str(row[name]) for row in block.table.rows for name in ("test", "measure") if row.get(name))
