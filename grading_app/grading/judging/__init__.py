"""Judges: models that grade answers. Data flows in one direction.

`judge_plan` creates a judge's trials from done answers, and the engine calls the model as for any trial.
`verdict_reader` parses the replies into gradings and preferences; `verdicts` defines their format.
`panels` combines the gradings of several judges.
"""
