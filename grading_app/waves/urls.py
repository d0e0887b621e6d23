"""The address of waves side by side."""

from django.urls import path

from grading_app.waves.views import experiment_waves

urlpatterns = [path("experiments/<slug:slug>/waves/", experiment_waves, name="experiment_waves")]
