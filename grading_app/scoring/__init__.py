"""Grading by rules: `answer_extraction` finds the answer in a text, `scorers` score it, `grading` stores the scores."""
