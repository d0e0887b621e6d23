"""Addresses of snapshots."""

from django.urls import path

from grading_app.snapshots import views

urlpatterns = [
    path("experiments/<slug:slug>/snapshots/", views.snapshot_make, name="snapshot_make"),
    path("experiments/<slug:slug>/snapshots/<slug:digest>.zip", views.snapshot_file, name="snapshot_file"),
]
