"""Addresses of results, their figures and their files."""

from django.urls import include, path

from grading_app import views
from grading_app.point_views import experiment_points

urlpatterns = [
    path("", include("grading_app.rating.urls")),
    path("", include("grading_app.comparing.urls")),
    path("", include("grading_app.overseeing.urls")),
    path("", include("grading_app.writing.urls")),
    path("", include("grading_app.snapshots.urls")),
    path("", include("grading_app.waves.urls")),
    path("experiments/<slug:slug>/results/", views.experiment_results, name="experiment_results"),
    path("experiments/<slug:slug>/points/", experiment_points, name="experiment_points"),
    path("experiments/<slug:slug>/grade/", views.experiment_grade, name="experiment_grade"),
    path("experiments/<slug:slug>/figures/<slug:name>.svg", views.experiment_figure, name="experiment_figure"),
    path(
        "experiments/<slug:slug>/export/<slug:table>.<slug:file_format>",
        views.experiment_export,
        name="experiment_export",
    ),
]
