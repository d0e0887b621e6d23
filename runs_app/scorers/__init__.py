"""Scorers, which need no database: `answer_extraction` finds the answer in a text, `scorers` score it, and `rules` name
a scorer with its parameters.
"""
