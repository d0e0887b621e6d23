"""Addresses of the grading tab."""

from django.urls import path

from grading_app.overseeing import views

urlpatterns = [
    path("experiments/<slug:slug>/grading/", views.experiment_grading, name="experiment_grading"),
    path("experiments/<slug:slug>/judge/", views.experiment_judge, name="experiment_judge"),
    path("experiments/<slug:slug>/panel/", views.experiment_convene, name="experiment_convene"),
]
