"""The five roles, as groups with the permissions of the admin that each needs."""

from django.db import migrations

VIEW_ALL = {
    "datasets_app": ["dataset", "item", "norm", "asset", "statuschange"],
    "runs_app": ["endpoint", "languagemodel", "prompt", "sampler", "dimension", "experiment", "run", "worker"],
}
EDITS = {
    "Researcher": {
        "datasets_app": {"dataset": ["add", "change"], "item": ["add", "change"]},
        "runs_app": {name: ["add", "change"] for name in ("prompt", "sampler", "dimension", "experiment")},
    },
    "Curator": {
        "datasets_app": {
            "dataset": ["add", "change", "delete", "approve"],
            "item": ["add", "change", "delete"],
            "norm": ["add", "change", "delete"],
        },
        "runs_app": {
            "prompt": ["add", "change", "delete", "approve"],
            "sampler": ["add", "change", "delete"],
            "dimension": ["add", "change", "delete"],
        },
    },
    "Operator": {
        "runs_app": {name: ["add", "change", "delete"] for name in ("endpoint", "languagemodel")},
    },
    "Rater": {},
    "Viewer": {},
}
STAFF = ("Researcher", "Curator", "Operator")


def _wanted(role):
    edits = EDITS[role]
    for app_label, models in VIEW_ALL.items():
        for model in models:
            verbs = ["view", *edits.get(app_label, {}).get(model, [])]
            for verb in verbs:
                yield app_label, model, f"{verb}_{model}"


def make_roles(apps, schema_editor):
    # Permissions are made after all migrations have run, which is too late for a group that needs them now.
    Group, Permission = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    ContentType = apps.get_model("contenttypes", "ContentType")
    names = {"approve_dataset": "Can approve and archive datasets", "approve_prompt": "Can approve and archive prompts"}
    for role in EDITS:
        group, _ = Group.objects.get_or_create(name=role)
        if role not in STAFF:
            continue
        for app_label, model, codename in _wanted(role):
            kind, _ = ContentType.objects.get_or_create(app_label=app_label, model=model)
            verb, _, noun = codename.partition("_")
            permission, _ = Permission.objects.get_or_create(
                content_type=kind, codename=codename, defaults={"name": names.get(codename, f"Can {verb} {noun}")}
            )
            group.permissions.add(permission)


class Migration(migrations.Migration):
    dependencies = [
        ("grading_app", "0001_initial"),
        ("datasets_app", "0002_freeze"),
        ("runs_app", "0002_freeze"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunPython(make_roles, migrations.RunPython.noop)]
