"""Rubrics and texts of items that are no drafts, and graders and panels in use, never change; and who may edit them."""

from django.db import migrations

FREEZE = """
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON grading_app_rubric
FOR EACH ROW WHEN (OLD.status <> 'draft') EXECUTE FUNCTION runs_app_guard_frozen('status', 'created_by_id');

-- Of a set of texts, the condition that wrote it may go with its experiment.
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON runs_app_textset
FOR EACH ROW WHEN (OLD.status <> 'draft')
EXECUTE FUNCTION runs_app_guard_frozen('status', 'created_by_id', 'written_by_id');

CREATE FUNCTION runs_app_guard_item_text() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    frozen text;
    forgotten text[] := '{trial_id,edited_by_id}';
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(OLD) - forgotten = to_jsonb(NEW) - forgotten THEN RETURN NEW; END IF;
    -- Locked, so that a set is not approved while one of its texts changes.
    SELECT min(s.name || '@' || s.version) INTO frozen FROM (
        SELECT name, version FROM runs_app_textset
        WHERE status <> 'draft' AND id IN (
            CASE WHEN TG_OP = 'INSERT' THEN NULL ELSE OLD.text_set_id END,
            CASE WHEN TG_OP = 'DELETE' THEN NULL ELSE NEW.text_set_id END)
        FOR SHARE) s;
    IF frozen IS NOT NULL THEN
        RAISE EXCEPTION 'the texts of % are frozen', frozen
            USING ERRCODE = 'restrict_violation', HINT = 'Make a new version and change that.';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON runs_app_itemtext
FOR EACH ROW EXECUTE FUNCTION runs_app_guard_item_text();

CREATE FUNCTION grading_app_guard_in_use() RETURNS trigger LANGUAGE plpgsql AS $$
-- The first argument is the column of grade conditions that names this row; the others are what may still change.
DECLARE
    used boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM grading_app_gradecondition WHERE %I = $1)', TG_ARGV[0])
        INTO used USING OLD.id;
    IF used AND (TG_OP = 'DELETE' OR to_jsonb(OLD) - TG_ARGV[1:] <> to_jsonb(NEW) - TG_ARGV[1:]) THEN
        RAISE EXCEPTION '% % has graded: it never changes', TG_TABLE_NAME, OLD.name
            USING ERRCODE = 'restrict_violation', HINT = 'Make another one under a new name.';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON grading_app_grader
FOR EACH ROW EXECUTE FUNCTION grading_app_guard_in_use('grader_id', 'archived_at', 'created_by_id');
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON grading_app_panel
FOR EACH ROW EXECUTE FUNCTION grading_app_guard_in_use('panel_id', 'created_by_id');

CREATE FUNCTION grading_app_guard_member() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    used boolean;
BEGIN
    SELECT EXISTS (SELECT FROM grading_app_gradecondition WHERE panel_id IN (
        CASE WHEN TG_OP = 'INSERT' THEN NULL ELSE OLD.panel_id END,
        CASE WHEN TG_OP = 'DELETE' THEN NULL ELSE NEW.panel_id END)) INTO used;
    IF used THEN
        RAISE EXCEPTION 'a panel that has graded keeps its members' USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON grading_app_panel_graders
FOR EACH ROW EXECUTE FUNCTION grading_app_guard_member();
"""

THAW = """
DROP TRIGGER frozen ON grading_app_panel_graders;
DROP FUNCTION grading_app_guard_member();
DROP TRIGGER frozen ON grading_app_panel;
DROP TRIGGER frozen ON grading_app_grader;
DROP FUNCTION grading_app_guard_in_use();
DROP TRIGGER frozen ON runs_app_itemtext;
DROP FUNCTION runs_app_guard_item_text();
DROP TRIGGER frozen ON runs_app_textset;
DROP TRIGGER frozen ON grading_app_rubric;
"""

STAFF = ("Researcher", "Curator", "Operator")
KINDS = {"rubric": "grading_app", "grader": "grading_app", "panel": "grading_app", "textset": "runs_app"}
VERBS = {"Researcher": ("view", "add", "change"), "Curator": ("view", "add", "change", "delete"), "Operator": ("view",)}


def _wanted(role):
    yield from ((app, kind, f"{verb}_{kind}") for kind, app in KINDS.items() for verb in VERBS[role])
    if role == "Curator":
        yield "grading_app", "rubric", "approve_rubric"


def grant(apps, schema_editor):
    # Permissions are made after all migrations have run, which is too late for a group that needs them now.
    Group, Permission = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    ContentType = apps.get_model("contenttypes", "ContentType")
    for role in STAFF:
        group, _ = Group.objects.get_or_create(name=role)
        for app_label, model, codename in _wanted(role):
            kind, _ = ContentType.objects.get_or_create(app_label=app_label, model=model)
            name = (
                "Can approve and archive rubrics"
                if codename == "approve_rubric"
                else "Can " + codename.replace("_", " ")
            )
            permission, _ = Permission.objects.get_or_create(
                content_type=kind, codename=codename, defaults={"name": name}
            )
            group.permissions.add(permission)


class Migration(migrations.Migration):
    dependencies = [
        ("grading_app", "0005_rated_answers"),
        ("runs_app", "0009_stages"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [
        migrations.RunSQL(FREEZE, THAW),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
