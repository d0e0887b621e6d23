"""Addresses of experiments, runs, trials and endpoints."""

from django.urls import path

from runs_app.views import drafting, endpoints, experiments, keeping, ledger, progress, steering, trials, workers

urlpatterns = [
    path("experiments/", experiments.experiment_list, name="experiment_list"),
    path("experiments/new/", drafting.experiment_new, name="experiment_new"),
    path("experiments/new/outlook/", drafting.experiment_outlook, name="experiment_outlook"),
    path("experiments/new/file/", drafting.experiment_from_file, name="experiment_from_file"),
    path("experiments/<slug:slug>/", experiments.experiment_detail, name="experiment_detail"),
    path("experiments/<slug:slug>/edit/", drafting.experiment_edit, name="experiment_edit"),
    path("experiments/<slug:slug>/yaml/", experiments.experiment_yaml, name="experiment_yaml"),
    path("experiments/<slug:slug>/manifests/<int:pk>/", experiments.experiment_manifest, name="experiment_manifest"),
    path("experiments/<slug:slug>/preview/", experiments.experiment_preview, name="experiment_preview"),
    path("experiments/<slug:slug>/duplicate/", keeping.experiment_duplicate, name="experiment_duplicate"),
    path("experiments/<slug:slug>/archive/", keeping.experiment_archive, name="experiment_archive"),
    path("experiments/<slug:slug>/delete/", keeping.experiment_delete, name="experiment_delete"),
    path("experiments/<slug:slug>/progress/", progress.experiment_progress, name="experiment_progress"),
    path("experiments/<slug:slug>/ledger/", ledger.experiment_ledger, name="experiment_ledger"),
    path("ledger/", ledger.lab_ledger, name="ledger"),
    path("experiments/<slug:slug>/launch/", steering.experiment_launch, name="experiment_launch"),
    path("experiments/<slug:slug>/preflight/", steering.experiment_preflight, name="experiment_preflight"),
    path("experiments/<slug:slug>/steer/<str:verb>/", steering.experiment_steer, name="experiment_steer"),
    path("runs/<int:pk>/", progress.run_detail, name="run_detail"),
    path("runs/<int:pk>/steer/<str:verb>/", steering.run_steer, name="run_steer"),
    path("trials/", trials.trial_list, name="trial_list"),
    path("trials/<int:pk>/", trials.trial_detail, name="trial_detail"),
    path("workers/", workers.worker_list, name="worker_list"),
    path("endpoints/", endpoints.endpoint_list, name="endpoint_list"),
    path("endpoints/new/", endpoints.endpoint_new, name="endpoint_new"),
    path("endpoints/<int:pk>/live/", endpoints.endpoint_live, name="endpoint_live"),
    path("endpoints/<int:pk>/edit/", endpoints.endpoint_edit, name="endpoint_edit"),
    path("endpoints/cache/purge/", endpoints.cache_purge, name="cache_purge"),
    path("endpoints/models/new/", endpoints.model_new, name="model_new"),
    path("endpoints/models/<int:pk>/edit/", endpoints.model_edit, name="model_edit"),
    path("endpoints/models/<int:pk>/check/", endpoints.model_check, name="model_check"),
    path("endpoints/models/<int:pk>/status/", endpoints.model_status, name="model_status"),
]
