"""Addresses of rubrics of items."""

from django.urls import path

from grading_app.writing import views

urlpatterns = [
    path("item-rubrics/", views.text_sets, name="text_sets"),
    path("item-rubrics/<slug:name>/<int:version>/", views.text_set, name="text_set"),
    path("item-rubrics/<slug:name>/<int:version>/items/<int:pk>/", views.text_of_item, name="text_of_item"),
    path("item-rubrics/<slug:name>/<int:version>/act/<slug:verb>/", views.text_set_act, name="text_set_act"),
    path("experiments/<slug:slug>/item-rubrics/", views.experiment_write, name="experiment_write"),
]
