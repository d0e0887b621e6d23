"""The URL configuration of datasets, their items, and images."""

from django.urls import path

from datasets_app.views import datasets, items, uploads

ONE = "datasets/<slug:slug>/<int:version>/"

urlpatterns = [
    path("datasets/", datasets.dataset_list, name="dataset_list"),
    path("datasets/new/", uploads.dataset_new, name="dataset_new"),
    path("datasets/new/hub/", uploads.dataset_hub, name="dataset_hub"),
    path("datasets/new/upload/<slug:token>/", uploads.dataset_import, name="dataset_import"),
    path("datasets/new/upload/<slug:token>/left-out.csv", uploads.dataset_left_out, name="dataset_left_out"),
    path("datasets/new/upload/<slug:token>/thumbnail/<slug:sha256>", uploads.upload_thumbnail, name="upload_thumbnail"),
    path(ONE, datasets.dataset_detail, name="dataset_detail"),
    path(f"{ONE}table/", datasets.dataset_table, name="dataset_table"),
    path(f"{ONE}about/", datasets.dataset_about, name="dataset_about"),
    path(f"{ONE}edit/", datasets.dataset_edit, name="dataset_edit"),
    path(f"{ONE}norms/", uploads.dataset_norms, name="dataset_norms"),
    path(f"{ONE}sample/", datasets.dataset_sample, name="dataset_sample"),
    path(f"{ONE}star/", datasets.dataset_star, name="dataset_star"),
    path(f"{ONE}act/<slug:verb>/", datasets.dataset_act, name="dataset_act"),
    path(f"{ONE}items/<int:pk>/", items.item_detail, name="item_detail"),
    path(f"{ONE}items/<int:pk>/text/<slug:name>/", items.item_text, name="item_text"),
    path(f"{ONE}items/<int:pk>/act/<slug:verb>/", items.item_act, name="item_act"),
    path("assets/<slug:sha256>", items.asset, name="asset"),
    path("assets/<slug:sha256>/thumbnail", items.thumbnail, name="thumbnail"),
]
