"""The formats of other tools, a module for each. It ends with its `StudyFormat`, and imports no other tool's module.

In: a file or a folder. Out: a `Study`, or the `StudyDesign` of an experiment (`grading_app/study_import/study.py`). A
tool with large files of designs has a second module for them. Readers run in a process without keys, database or
network.
"""
