"""Grading by rules: `grading` stores the scores of answers by the scorers of `runs_app.scorers`."""
