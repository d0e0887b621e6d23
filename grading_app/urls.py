"""URLs of pages that show answers with their grades: experiments, trials, results, figures and files."""

from django.urls import path

from grading_app.views import (
    analysis,
    blind,
    compare,
    experiment_forms,
    experiments,
    files,
    grading,
    item_rubrics,
    items,
    judges,
    library,
    queues,
    raters,
    rating,
    reports,
    results,
    share_links,
    start,
    study_import,
    trials,
)
from grading_app.views.compare import experiment_waves
from grading_app.views.parametric import experiment_points, explorer, leaderboard, leaderboard_figure

urlpatterns = [
    path("experiments/", experiments.experiment_list, name="experiment_list"),
    path("experiments/new/", experiment_forms.experiment_new, name="experiment_new"),
    path("experiments/new/summary/", experiment_forms.experiment_summary, name="experiment_summary"),
    path("experiments/new/choices/<slug:field>/", experiment_forms.experiment_choices, name="experiment_choices"),
    path("experiments/new/file/", experiment_forms.experiment_from_file, name="experiment_from_file"),
    path("experiments/<slug:slug>/", experiments.experiment_detail, name="experiment_detail"),
    path("experiments/<slug:slug>/store/", experiments.experiment_store, name="experiment_store"),
    path("experiments/<slug:slug>/bring-back/", experiments.experiment_bring_back, name="experiment_bring_back"),
    path("experiments/<slug:slug>/star/", experiments.experiment_star, name="experiment_star"),
    path("experiments/<slug:slug>/edit/", experiment_forms.experiment_edit, name="experiment_edit"),
    path("experiments/<slug:slug>/yaml/", experiments.experiment_yaml, name="experiment_yaml"),
    path("experiments/<slug:slug>/manifests/<int:pk>/", experiments.experiment_manifest, name="experiment_manifest"),
    path("experiments/<slug:slug>/preview/", experiments.experiment_preview, name="experiment_preview"),
    path("experiments/<slug:slug>/preview/<int:number>/", experiments.experiment_message, name="experiment_message"),
    path("experiments/<slug:slug>/progress/", results.experiment_progress, name="experiment_progress"),
    path("trials/", trials.trial_list, name="trial_list"),
    path("trials/<int:pk>/", trials.trial_detail, name="trial_detail"),
    path("trials/<int:pk>/text/<slug:name>/", trials.trial_text, name="trial_text"),
    path("trials/<int:pk>/messages/<int:number>/", trials.trial_message, name="trial_message"),
]
urlpatterns += [
    path("start/", start.start, name="start"),
    path("start/preview/", start.start_preview, name="start_preview"),
    path("start/tries/<int:pk>/", start.start_try, name="start_try"),
    path("experiments/<slug:slug>/results/", results.experiment_results, name="experiment_results"),
    path("experiments/<slug:slug>/files/", files.experiment_files, name="experiment_files"),
    path(
        "experiments/<slug:slug>/preregistration/",
        experiment_forms.experiment_preregistration,
        name="experiment_preregistration",
    ),
    path(
        "experiments/<slug:slug>/preregistration.md",
        experiment_forms.preregistration_text,
        name="preregistration_text",
    ),
    path("experiments/<slug:slug>/points/", experiment_points, name="experiment_points"),
    path("experiments/<slug:slug>/grade/", grading.experiment_grade, name="experiment_grade"),
    path(
        "experiments/<slug:slug>/export/<slug:table>.<slug:file_format>",
        files.experiment_export,
        name="experiment_export",
    ),
]
urlpatterns += [
    path("experiments/new/import/", study_import.study_import_new, name="study_import_new"),
    path("experiments/new/import/<slug:token>/", study_import.study_import, name="study_import"),
    path("datasets/<slug:slug>/<int:version>/bundle.zip", files.dataset_bundle, name="dataset_bundle"),
    path("experiments/<slug:slug>/bundles/<slug:kind>.zip", files.experiment_bundle, name="experiment_bundle"),
    path("experiments/<slug:slug>/snapshots/", files.snapshot_make, name="snapshot_make"),
    path("experiments/<slug:slug>/snapshots/<slug:digest>.zip", files.snapshot_file, name="snapshot_file"),
]
urlpatterns += [
    path("experiments/<slug:slug>/analysis/", analysis.experiment_analysis, name="experiment_analysis"),
    path("experiments/<slug:slug>/agreement/", raters.experiment_agreement, name="experiment_agreement"),
    path(
        "experiments/<slug:slug>/disagreements/",
        raters.experiment_disagreements,
        name="experiment_disagreements",
    ),
    path("experiments/<slug:slug>/disagreements/<int:pk>/", raters.disagreement, name="disagreement"),
    path(
        "experiments/<slug:slug>/disagreements/pairs/<int:pk>/",
        grading.pair_disagreement,
        name="pair_disagreement",
    ),
    path(
        "experiments/<slug:slug>/disagreements/<int:pk>/settle/",
        raters.disagreement_adjudicate,
        name="disagreement_adjudicate",
    ),
]
urlpatterns += [
    path("experiments/<slug:slug>/grading/", grading.experiment_grading, name="experiment_grading"),
    path("experiments/<slug:slug>/length/", grading.grading_length, name="grading_length"),
    path("experiments/<slug:slug>/judge/", grading.experiment_judge, name="experiment_judge"),
    path("experiments/<slug:slug>/judge/draw/", judges.experiment_draw_judges, name="experiment_draw_judges"),
    path("experiments/<slug:slug>/panel/", grading.experiment_add_panel, name="experiment_add_panel"),
]
urlpatterns += [
    path("ratings/", rating.rating_queue, name="rating_queue"),
    path("ratings/queues/", queues.queue_list, name="rating_queue_list"),
    path("ratings/queues/new/", queues.queue_new, name="rating_queue_new"),
    path("experiments/<slug:slug>/ratings/new/", queues.queue_of_answers, name="rating_queue_of_answers"),
    path("ratings/queues/<slug:name>/", queues.queue_detail, name="rating_queue_detail"),
    path("ratings/queues/<slug:name>/edit/", queues.queue_edit, name="rating_queue_edit"),
    path("ratings/queues/<slug:name>/invite/", queues.queue_invite, name="rating_queue_invite"),
    path("ratings/queues/<slug:name>/assign/", queues.queue_assign, name="rating_queue_assign"),
    path("ratings/queues/<slug:name>/ratings.csv", queues.queue_export, name="rating_queue_export"),
    path("ratings/queues/<slug:name>/<slug:verb>/", queues.queue_act, name="rating_queue_act"),
    path("ratings/queues/<slug:name>/raters/<int:number>/<slug:verb>/", queues.rater_act, name="rater_act"),
    path("ratings/join/<str:token>/", rating.rating_join, name="rating_join"),
    path("ratings/<slug:name>/", rating.rating_item, name="rating_item"),
    path("ratings/<slug:name>/start/", rating.rating_start, name="rating_start"),
    path("ratings/<slug:name>/rate/", rating.rating_rate, name="rating_rate"),
    path("ratings/<slug:name>/undo/", rating.rating_undo, name="rating_undo"),
    path("ratings/<slug:name>/image/<int:position>/", rating.rating_image, name="rating_image"),
    path("ratings/<slug:name>/text/<int:position>/<slug:part>/", rating.rating_text, name="rating_text"),
]
urlpatterns += [
    path("experiments/<slug:slug>/blind/", blind.blind_start, name="blind_start"),
    path("experiments/<slug:slug>/blind/reveal/", blind.blind_reveal, name="blind_reveal"),
]
urlpatterns += [
    path("compare/", compare.compare, name="compare"),
]
urlpatterns += [
    path("experiments/<slug:slug>/matrix/", items.experiment_matrix, name="experiment_matrix"),
    path("experiments/<slug:slug>/matrix/<int:item>/<int:condition>/", items.matrix_cell, name="matrix_cell"),
]
urlpatterns += [
    path("items/<int:pk>/", items.item_page, name="item_page"),
    path("experiments/<slug:slug>/matrix/<int:pk>/", items.item_transcript, name="item_transcript"),
]
urlpatterns += [
    path("leaderboard/", leaderboard, name="leaderboard"),
    path("leaderboard/figure.<slug:file_format>", leaderboard_figure, name="leaderboard_figure"),
    path("experiments/<slug:slug>/explorer/", explorer, name="explorer"),
]
urlpatterns += [path("experiments/<slug:slug>/waves/", experiment_waves, name="experiment_waves")]
urlpatterns += [
    path("experiments/<slug:slug>/report/", reports.experiment_report, name="experiment_report"),
    path("experiments/<slug:slug>/report/edit/", reports.report_edit, name="report_edit"),
    path("experiments/<slug:slug>/report/report.<slug:file_format>", reports.report_file, name="report_file"),
    path("experiments/<slug:slug>/report/figures/<slug:name>.svg", reports.report_figure, name="report_figure"),
    path("experiments/<slug:slug>/figures/", files.experiment_figures, name="experiment_figures"),
    path("experiments/<slug:slug>/figures/summary.json", files.figures_summary, name="figures_summary"),
    path("experiments/<slug:slug>/figures/<slug:name>.<slug:file_format>", files.figure_file, name="figure_file"),
]
urlpatterns += [
    path("item-rubrics/", item_rubrics.text_sets, name="text_sets"),
    path("library/", library.library, name="library"),
    path("library/judges/", judges.judge_list, name="judge_list"),
    path("library/new/judge/", judges.judge_new, name="judge_new"),
    path("library/judges/<slug:name>/", judges.judge_page, name="judge_page"),
    path("library/judges/<slug:name>/archive/", judges.judge_archive, name="judge_archive"),
    path("library/rubrics/<slug:name>/<int:version>/test/", judges.rubric_test, name="rubric_test"),
    path("library/<slug:kind>/", library.library_list, name="library_list"),
    path("library/new/<slug:kind>/", library.library_new, name="library_new"),
    path("library/new/<slug:kind>/preview/", library.library_preview, name="library_preview"),
    path("library/new/<slug:kind>/try/", library.library_try, name="library_try"),
    path("library/<slug:kind>/<slug:name>/", library.library_page, name="library_page"),
    path("library/<slug:kind>/<slug:name>/<int:version>/edit/", library.library_edit, name="library_edit"),
    path("library/<slug:kind>/<slug:name>/<int:version>/<slug:verb>/", library.library_act, name="library_act"),
    path("item-rubrics/<slug:name>/<int:version>/", item_rubrics.text_set, name="text_set"),
    path("item-rubrics/<slug:name>/<int:version>/items/<int:pk>/", item_rubrics.text_of_item, name="text_of_item"),
    path("item-rubrics/<slug:name>/<int:version>/act/<slug:verb>/", item_rubrics.text_set_act, name="text_set_act"),
    path("experiments/<slug:slug>/item-rubrics/", item_rubrics.experiment_write, name="experiment_write"),
]
urlpatterns += [
    path("experiments/<slug:slug>/links/", share_links.share_links, name="share_links"),
    path("experiments/<slug:slug>/links/<int:pk>/revoke/", share_links.share_link_revoke, name="share_link_revoke"),
    path("shared/<str:token>/", share_links.shared, name="shared"),
    path("shared/<str:token>/report/", share_links.shared_report, name="shared_report"),
    path(
        "shared/<str:token>/report/report.<slug:file_format>",
        share_links.shared_report_file,
        name="shared_report_file",
    ),
    path(
        "shared/<str:token>/report/figures/<slug:name>.svg",
        share_links.shared_report_figure,
        name="shared_report_figure",
    ),
    path("shared/<str:token>/leaderboard/", share_links.shared_leaderboard, name="shared_leaderboard"),
    path("shared/<str:token>/design/", share_links.shared_design, name="shared_design"),
    path("shared/<str:token>/figures/", share_links.shared_figures, name="shared_figures"),
    path("shared/<str:token>/figures/<slug:name>.svg", share_links.shared_figure, name="shared_figure"),
]
