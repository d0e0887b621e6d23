"""Addresses of the grading tab."""

from django.urls import path

from grading_app.overseeing import drawing_views, length_views, views

urlpatterns = [
    path("experiments/<slug:slug>/grading/", views.experiment_grading, name="experiment_grading"),
    path("experiments/<slug:slug>/length/", length_views.grading_length, name="grading_length"),
    path("experiments/<slug:slug>/length.svg", length_views.grading_length_figure, name="grading_length_figure"),
    path("experiments/<slug:slug>/judge/", views.experiment_judge, name="experiment_judge"),
    path("experiments/<slug:slug>/judge/draw/", drawing_views.experiment_draw_judges, name="experiment_draw_judges"),
    path("experiments/<slug:slug>/panel/", views.experiment_convene, name="experiment_convene"),
]
