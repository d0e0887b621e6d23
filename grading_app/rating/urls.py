"""Addresses of ratings by people: those of members first, then those of raters."""

from django.urls import path

from grading_app.rating import member_views, rater_views

urlpatterns = [
    path("ratings/", rater_views.rating_queue, name="rating_queue"),
    path("ratings/queues/", member_views.queue_list, name="rating_queue_list"),
    path("ratings/queues/new/", member_views.queue_new, name="rating_queue_new"),
    path("experiments/<slug:slug>/ratings/new/", member_views.queue_of_answers, name="rating_queue_of_answers"),
    path("ratings/queues/<slug:name>/", member_views.queue_detail, name="rating_queue_detail"),
    path("ratings/queues/<slug:name>/edit/", member_views.queue_edit, name="rating_queue_edit"),
    path("ratings/queues/<slug:name>/invite/", member_views.queue_invite, name="rating_queue_invite"),
    path("ratings/queues/<slug:name>/assign/", member_views.queue_assign, name="rating_queue_assign"),
    path("ratings/queues/<slug:name>/ratings.csv", member_views.queue_export, name="rating_queue_export"),
    path("ratings/queues/<slug:name>/<slug:verb>/", member_views.queue_act, name="rating_queue_act"),
    path("ratings/queues/<slug:name>/raters/<int:number>/<slug:verb>/", member_views.rater_act, name="rater_act"),
    path("ratings/join/<str:token>/", rater_views.rating_join, name="rating_join"),
    path("ratings/<slug:name>/", rater_views.rating_item, name="rating_item"),
    path("ratings/<slug:name>/start/", rater_views.rating_start, name="rating_start"),
    path("ratings/<slug:name>/rate/", rater_views.rating_rate, name="rating_rate"),
    path("ratings/<slug:name>/undo/", rater_views.rating_undo, name="rating_undo"),
    path("ratings/<slug:name>/image/<int:position>/", rater_views.rating_image, name="rating_image"),
]
