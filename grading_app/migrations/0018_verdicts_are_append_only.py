"""Gradings and preferences are append-only: a newer verdict keeps the former one in `SupersededVerdict`.

A writer of newer verdicts sets `evalsite.superseding_verdicts` for its transaction
(`grading_app.verdict_history.superseding`). Every check is made once a statement.
"""

from django.db import migrations

DELETING = "To delete an experiment with all its rows: python manage.py experiment delete NAME"
GRADING = "Grade again with python manage.py grade NAME --force, which keeps the former verdicts."
# The trials of a verdict, of a row `r` or `a`; a grading has no rival.
UNITS = {
    "grading_app_grading": ("{row}.trial_id", "NULL::bigint"),
    "grading_app_preference": ("{row}.trial_a_id", "{row}.trial_b_id"),
}
TRUNCATE = """
CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
FOR EACH STATEMENT WHEN (evalsite_deleting() <> '*') EXECUTE FUNCTION evalsite_refuse_change('rows stay', '{deleting}');
"""
VERDICTS = """
CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    superseding boolean := coalesce(current_setting('evalsite.superseding_verdicts', true), '') = 'on';
    stray bigint;
BEGIN
    SELECT id INTO stray FROM removed LIMIT 1;
    IF stray IS NULL THEN RETURN NULL; END IF;
    IF NOT superseding THEN
        RAISE EXCEPTION '% % is a verdict that was given: it never changes', TG_TABLE_NAME, stray
            USING ERRCODE = 'restrict_violation', HINT = '{grading}';
    END IF;
    SELECT r.id INTO stray FROM removed r LEFT JOIN added a ON a.id = r.id
    WHERE (a.condition_id, {a_trial}, {a_rival}) IS DISTINCT FROM (r.condition_id, {r_trial}, {r_rival}) LIMIT 1;
    IF stray IS NOT NULL THEN
        RAISE EXCEPTION '% % keeps its grade condition and its trials', TG_TABLE_NAME, stray
            USING ERRCODE = 'restrict_violation';
    END IF;
    INSERT INTO grading_app_supersededverdict (condition_id, trial_id, rival_id, content)
    SELECT r.condition_id, {r_trial}, {r_rival}, to_jsonb(r) FROM removed r JOIN added a ON a.id = r.id
    WHERE to_jsonb(r) - 'created_at' <> to_jsonb(a) - 'created_at';
    RETURN NULL;
END $$;
CREATE TRIGGER {table}_append_only AFTER UPDATE ON {table}
REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION {table}_append_only();

CREATE FUNCTION {table}_no_delete() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stray bigint;
BEGIN
    IF evalsite_deleting() = '*' THEN RETURN NULL; END IF;
    IF coalesce(current_setting('evalsite.superseding_verdicts', true), '') = 'on' THEN
        INSERT INTO grading_app_supersededverdict (condition_id, trial_id, rival_id, content)
        SELECT r.condition_id, {r_trial}, {r_rival}, to_jsonb(r) FROM removed r;
        RETURN NULL;
    END IF;
    SELECT r.id INTO stray FROM removed r LEFT JOIN grading_app_gradecondition c ON c.id = r.condition_id
    WHERE c.experiment_id::text IS DISTINCT FROM evalsite_deleting() LIMIT 1;
    IF stray IS NOT NULL THEN
        RAISE EXCEPTION '% % is a verdict that was given: it goes only with its experiment', TG_TABLE_NAME, stray
            USING ERRCODE = 'restrict_violation', HINT = '{deleting}';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER {table}_no_delete AFTER DELETE ON {table}
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {table}_no_delete();
""" + TRUNCATE
NO_VERDICTS = """
DROP TRIGGER {table}_no_truncate ON {table};
DROP TRIGGER {table}_no_delete ON {table};
DROP FUNCTION {table}_no_delete();
DROP TRIGGER {table}_append_only ON {table};
DROP FUNCTION {table}_append_only();
"""

# Rows that nothing replaces: former verdicts, and what people settled (whose updates `stays` refuses already).
KEPT = """
CREATE FUNCTION {table}_no_delete() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stray bigint;
BEGIN
    IF evalsite_deleting() = '*' THEN RETURN NULL; END IF;
    SELECT r.id INTO stray FROM removed r LEFT JOIN grading_app_gradecondition c ON c.id = r.condition_id
    WHERE c.experiment_id::text IS DISTINCT FROM evalsite_deleting() LIMIT 1;
    IF stray IS NOT NULL THEN
        RAISE EXCEPTION '% % goes only with its experiment', TG_TABLE_NAME, stray
            USING ERRCODE = 'restrict_violation', HINT = '{deleting}';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER {table}_no_delete AFTER DELETE ON {table}
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {table}_no_delete();
""" + TRUNCATE
NOT_KEPT = """
DROP TRIGGER {table}_no_truncate ON {table};
DROP TRIGGER {table}_no_delete ON {table};
DROP FUNCTION {table}_no_delete();
"""
FORMER = """
CREATE TRIGGER grading_app_supersededverdict_no_update BEFORE UPDATE ON grading_app_supersededverdict
FOR EACH ROW EXECUTE FUNCTION evalsite_refuse_change('former verdicts never change', 'Grade again instead.');
"""
NO_FORMER = "DROP TRIGGER grading_app_supersededverdict_no_update ON grading_app_supersededverdict;"
KEPT_TABLES = ("grading_app_supersededverdict", "grading_app_adjudication")


def for_verdicts(template):
    return "".join(
        template.format(
            table=table,
            deleting=DELETING,
            grading=GRADING,
            **{f"{row}_trial": trial.format(row=row) for row in "ra"},
            **{f"{row}_rival": rival.format(row=row) for row in "ra"},
        )
        for table, (trial, rival) in UNITS.items()
    )


def for_kept(template):
    return "".join(template.format(table=table, deleting=DELETING) for table in KEPT_TABLES)


class Migration(migrations.Migration):
    dependencies = [("grading_app", "0017_checked_choices"), ("datasets_app", "0005_history_is_append_only")]
    operations = [
        migrations.RunSQL(for_verdicts(VERDICTS), for_verdicts(NO_VERDICTS)),
        migrations.RunSQL(for_kept(KEPT), for_kept(NOT_KEPT)),
        migrations.RunSQL(FORMER, NO_FORMER),
    ]
