"""Addresses of raters compared."""

from django.urls import path

from grading_app.comparing import agreement_views

urlpatterns = [
    path("experiments/<slug:slug>/agreement/", agreement_views.experiment_agreement, name="experiment_agreement"),
    path(
        "experiments/<slug:slug>/agreement/<slug:name>.svg", agreement_views.agreement_figure, name="agreement_figure"
    ),
]
