"""Addresses of raters compared."""

from django.urls import path

from grading_app.comparing import agreement_views, disagreement_views, pair_views

urlpatterns = [
    path("experiments/<slug:slug>/agreement/", agreement_views.experiment_agreement, name="experiment_agreement"),
    path(
        "experiments/<slug:slug>/agreement/<slug:name>.svg", agreement_views.agreement_figure, name="agreement_figure"
    ),
    path(
        "experiments/<slug:slug>/disagreements/",
        disagreement_views.experiment_disagreements,
        name="experiment_disagreements",
    ),
    path("experiments/<slug:slug>/disagreements/<int:pk>/", disagreement_views.disagreement, name="disagreement"),
    path(
        "experiments/<slug:slug>/disagreements/pairs/<int:pk>/",
        pair_views.pair_disagreement,
        name="pair_disagreement",
    ),
    path(
        "experiments/<slug:slug>/disagreements/<int:pk>/settle/",
        disagreement_views.disagreement_settle,
        name="disagreement_settle",
    ),
]
