"""The five roles, as groups with the permissions that each needs in the admin."""

from django.db import migrations

ROLES = ("Researcher", "Curator", "Operator", "Rater", "Viewer")
# The models that researchers, curators and operators may view. Raters and viewers do not use the admin.
VIEWED = {
    "lib": ("statuschange",),
    "datasets_app": ("asset", "dataset", "item", "norm"),
    "runs_app": (
        "dimension",
        "endpoint",
        "experiment",
        "languagemodel",
        "prompt",
        "providerbatch",
        "run",
        "sampler",
        "textset",
        "worker",
    ),
    "grading_app": ("grader", "panel", "rubric"),
}
ADD = ("add", "change")
DELETE = ("add", "change", "delete")
APPROVE = ("add", "change", "delete", "approve")
EDITED = {
    "Researcher": {
        "datasets_app": {"dataset": ADD, "item": ADD},
        "runs_app": {"dimension": ADD, "experiment": ADD, "prompt": ADD, "sampler": ADD, "textset": ADD},
        "grading_app": {"grader": ADD, "panel": ADD, "rubric": ADD},
    },
    "Curator": {
        "datasets_app": {"dataset": APPROVE, "item": DELETE, "norm": DELETE},
        "runs_app": {"dimension": DELETE, "prompt": APPROVE, "sampler": DELETE, "textset": DELETE},
        "grading_app": {"grader": DELETE, "panel": DELETE, "rubric": APPROVE},
    },
    "Operator": {"runs_app": {"endpoint": DELETE, "languagemodel": DELETE}},
}


def create_roles(apps, schema_editor):
    Group = apps.get_model("auth", "Group")
    groups = {role: Group.objects.create(name=role) for role in ROLES}
    for role, edited in EDITED.items():
        for app_label, names in VIEWED.items():
            for name in names:
                for verb in ("view", *edited.get(app_label, {}).get(name, ())):
                    groups[role].permissions.add(_permission(apps, apps.get_model(app_label, name), verb))


def _permission(apps, model, verb):
    """Return the permission. Django creates permissions only after all migrations, which is too late for groups."""
    meta = model._meta
    kind, _ = apps.get_model("contenttypes", "ContentType").objects.get_or_create(
        app_label=meta.app_label, model=meta.model_name
    )
    codename = f"{verb}_{meta.model_name}"
    name = dict(meta.permissions).get(codename, f"Can {verb} {meta.verbose_name_raw}")
    permission, _ = apps.get_model("auth", "Permission").objects.get_or_create(
        content_type=kind, codename=codename, defaults={"name": name}
    )
    return permission


class Migration(migrations.Migration):
    dependencies = [
        ("grading_app", "0002_triggers"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunPython(create_roles, migrations.RunPython.noop)]
