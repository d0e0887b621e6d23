"""The formats of other tools. A module ends with its `StudyFormat`, and imports no other tool's module.

In: a file or a folder. Out: a draft of a study, or the design of an experiment. A tool with a large store or file has
a second module for it. Readers run in a process without keys, database or network.
"""
