"""Import of studies that were made with other tools: trials, answers, costs and scores, without a call.

In: files of another tool, which a `StudyFormat` finds and reads into a `StudyDraft` (`study_draft`), or a snapshot of
another site. Out: rows. `study` has the records of a study, `study_files` the study that holds them, each module of
`formats` one format, and `writer` writes a study as rows. A value that the source does not have stays unknown, never
zero.
"""
