"""Attempts and the ledger are append-only, and done trials stay: kept by triggers.

A verb that deletes an experiment, or a part of one, names it in `evalsite.deleting_experiment` for its transaction
(`runs_app.deletion.permit_deletion`). All checks are made once a statement, except that of a changed attempt.
"""

from django.db import migrations

HINT = "To delete an experiment with all its rows: python manage.py experiment delete NAME"

# {belongs} says whether the removed row `r` belongs to the experiment `permitted`.
REFUSE_DELETION = """
CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    permitted text := evalsite_deleting();
    stray bigint;
BEGIN
    IF permitted = '*' THEN RETURN NULL; END IF;
    SELECT r.id INTO stray FROM removed r WHERE {condition} AND NOT (permitted <> '' AND {belongs}) LIMIT 1;
    IF stray IS NOT NULL THEN
        RAISE EXCEPTION '% % {rule}', TG_TABLE_NAME, stray USING ERRCODE = 'restrict_violation',
            HINT = '{hint}';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER {function} AFTER DELETE ON {table}
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {function}();

CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
FOR EACH STATEMENT WHEN (evalsite_deleting() <> '*') EXECUTE FUNCTION evalsite_refuse_change('rows stay', '{hint}');
"""
ALLOW_DELETION = """
DROP TRIGGER {table}_no_truncate ON {table};
DROP TRIGGER {function} ON {table};
DROP FUNCTION {function}();
"""
OF_RUN = "r.run_id IN (SELECT id FROM runs_app_run WHERE experiment_id::text = permitted)"
OF_RUN_OR_EXPERIMENT = f"(coalesce(r.experiment_id::text = permitted, false) OR coalesce({OF_RUN}, false))"
GUARDED = [
    ("runs_app_trial", "done_stays", "r.status = 'done'", OF_RUN,
     "is done: it goes only with its run or its experiment"),
    ("runs_app_attempt", "no_delete", "true", OF_RUN, "is a call that was made: it goes only with its experiment"),
    ("runs_app_ledgerentry", "no_delete", "true", OF_RUN_OR_EXPERIMENT,
     "is part of the ledger: it goes only with its experiment"),
    ("runs_app_deletedrun", "no_delete", "true", "r.experiment_id::text = permitted",
     "is what a deleted run cost: it goes only with its experiment"),
]  # fmt: skip


def guards(template):
    return "".join(
        template.format(
            table=table, function=f"{table}_{name}", condition=condition, belongs=belongs, rule=rule, hint=HINT
        )
        for table, name, condition, belongs, rule in GUARDED
    )


# A late answer completes the row of a call that was given up. A worker that is deleted leaves no name behind.
ATTEMPTS = """
CREATE FUNCTION runs_app_attempt_no_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.outcome = 'lost' AND NEW.outcome = 'late'
        AND (OLD.id, OLD.trial_id, OLD.run_id, OLD.token, OLD.call)
            = (NEW.id, NEW.trial_id, NEW.run_id, NEW.token, NEW.call) THEN
        RETURN NEW;
    END IF;
    IF NEW.worker_id IS NULL AND to_jsonb(OLD) - 'worker_id' = to_jsonb(NEW) - 'worker_id' THEN RETURN NEW; END IF;
    RAISE EXCEPTION 'attempt % is a call that was made: it never changes', OLD.id
        USING ERRCODE = 'restrict_violation', HINT = 'Only the late answer of a lost call completes its row.';
END $$;
CREATE TRIGGER runs_app_attempt_no_update BEFORE UPDATE ON runs_app_attempt
FOR EACH ROW EXECUTE FUNCTION runs_app_attempt_no_update();
"""
NO_ATTEMPTS = """
DROP TRIGGER runs_app_attempt_no_update ON runs_app_attempt;
DROP FUNCTION runs_app_attempt_no_update();
"""

# What a deleted run cost stays part of its experiment's budget.
DELETED_RUNS = """
CREATE TRIGGER runs_app_deletedrun_no_update BEFORE UPDATE ON runs_app_deletedrun FOR EACH ROW
EXECUTE FUNCTION evalsite_refuse_change('what a deleted run cost never changes', 'Raise the budget instead.');
"""
NO_DELETED_RUNS = "DROP TRIGGER runs_app_deletedrun_no_update ON runs_app_deletedrun;"

# The triggers of attempts and preflights write the ledger, at a depth above 0. Statements of sessions are at 0.
LEDGER = """
CREATE TRIGGER runs_app_ledgerentry_only_by_triggers BEFORE INSERT OR UPDATE ON runs_app_ledgerentry
FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)
EXECUTE FUNCTION evalsite_refuse_change('the ledger follows its calls', 'Write the attempts; the ledger adds them up.');
"""
NO_LEDGER = "DROP TRIGGER runs_app_ledgerentry_only_by_triggers ON runs_app_ledgerentry;"


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0036_checked_choices"), ("datasets_app", "0005_history_is_append_only")]
    operations = [
        migrations.RunSQL(guards(REFUSE_DELETION), guards(ALLOW_DELETION)),
        migrations.RunSQL(ATTEMPTS, NO_ATTEMPTS),
        migrations.RunSQL(DELETED_RUNS, NO_DELETED_RUNS),
        migrations.RunSQL(LEDGER, NO_LEDGER),
    ]
