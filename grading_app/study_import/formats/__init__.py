"""The formats of other tools. A module ends with its `StudyFormat`, and imports no other tool's module.

In: a file or a folder. Out: a `Study`, or the `StudyDesign` of an experiment (`grading_app/study_import/study.py`). A
tool with a large store or file has a second module for it. Readers run in a process without keys, database or network.
"""
