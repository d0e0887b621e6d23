"""The conversion of a person's ratings by a rubric to the grading of an equal judge's verdict.

`parse_verdict` computes both scores, so people and judges can be compared per criterion and in total.
Practice and attention checks produce no gradings.
"""

from __future__ import annotations

from evalsite.lib.text.hashing import build_condition_id, slugify_name
from grading_app.judging.verdicts import Verdict, parse_verdict
from grading_app.models import GradeCondition, Grading, Preference, RaterAssignment, Rating, RatingQueue, Rubric
from grading_app.models.verdict_history import allow_superseding
from grading_app.rating.questions import build_verdict_object, list_questions


def write_grading(rating: Rating) -> None:
    """Write the grading of this person for this answer, or delete it while a criterion has no rating.

    Call this in the transaction that changed the rating, which locks the rater's row.
    """
    queue = rating.assignment.queue
    if queue.rubric is None or rating.kind != Rating.Kind.ITEM:
        return
    verdict = _build_verdict(rating, queue, queue.rubric)
    with allow_superseding():
        if verdict is None:
            by_rater = {"condition__assignment": rating.assignment_id}
            Grading.objects.filter(**by_rater, trial=rating.trial).delete()
            Preference.objects.filter(**by_rater, trial_a=rating.trial, trial_b=rating.rival).delete()
        elif queue.rates_pairs:
            Preference.objects.update_or_create(
                condition=get_or_create_condition(rating.assignment),
                trial_a=rating.trial,
                trial_b=rating.rival,
                defaults={"winner": verdict.winner, "parse_error": verdict.error},
            )
        else:
            fields = {"score": verdict.score, "score_raw": verdict.raw, "detail": verdict.detail}
            Grading.objects.update_or_create(
                condition=get_or_create_condition(rating.assignment),
                trial=rating.trial,
                defaults={**fields, "parse_ok": not verdict.error, "parse_error": verdict.error},
            )


def _build_verdict(rating: Rating, queue: RatingQueue, rubric: Rubric) -> Verdict | None:
    """Return the verdict, or None until every question of the rubric has a rating."""
    unit_ratings = Rating.objects.filter(assignment=rating.assignment_id, trial=rating.trial_id, rival=rating.rival_id)
    values = {criterion: value or 0.0 for criterion, value in unit_ratings.given().values_list("criterion", "value")}
    if len(values) < len(list_questions(queue)):
        return None
    return parse_verdict(build_verdict_object(rubric, values), rubric.content)


def get_or_create_condition(assignment: RaterAssignment) -> GradeCondition:
    """Return this rater's grade condition in this queue, creating it if needed."""
    queue = assignment.queue
    if queue.rubric is None or queue.experiment is None:
        raise ValueError(f"{queue} has no rubric")
    rubric, experiment = queue.rubric, queue.experiment
    content = {"kind": "person", "rubric": rubric.content, "queue": queue.name, "rater": assignment.number}
    if queue.text_set is not None:
        content["texts"] = queue.text_set.content_hash
    condition, _ = GradeCondition.objects.get_or_create(
        assignment=assignment,
        defaults={
            "experiment": experiment,
            "grade_condition_id": build_condition_id(slugify_name(f"{queue.name}-rater-{assignment.number}"), content),
            "kind": GradeCondition.Kind.PERSON,
            "rubric": rubric,
            "parameters": {"queue": queue.name, "rater": assignment.number},
        },
    )
    return condition
