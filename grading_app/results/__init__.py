"""The scores of answers: the one place where a measure, a mean and its interval come from.

In: the rows of the view `AnswerScore`, which has one for each answer and grader, and the scales of graders and
dimensions. Out: `Measure`, the arrays of scores by item and condition (`load_scores`), and the mean or share of a
condition with its interval and its missing answers (`estimate`). Pages, files and commands of all packages above read
these, so that they show the same numbers.
"""
