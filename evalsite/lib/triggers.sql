-- Functions that the triggers of several apps share, whose names begin with evalsite_; and the triggers of the history.

-- Append-only rows, and rows that only the database writes: refuse the statement.
-- The arguments are the rule and what to do instead.
CREATE OR REPLACE FUNCTION evalsite_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'restrict_violation', HINT = TG_ARGV[1];
END $$;

-- Rows that stay for as long as their experiment: refuse to empty their table, except for all experiments at once.
CREATE OR REPLACE FUNCTION evalsite_refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF evalsite_deleting() = '*' THEN RETURN NULL; END IF;
    RAISE EXCEPTION '% on % refused: rows stay', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation',
        HINT = 'To delete an experiment with all its rows: python manage.py experiment delete NAME';
END $$;

-- Return the key of the experiment whose rows this transaction deletes, '*' for all experiments, or ''.
-- runs_app.deletion.permit_deletion sets it.
CREATE OR REPLACE FUNCTION evalsite_deleting() RETURNS text LANGUAGE sql STABLE AS $$
SELECT coalesce(current_setting('evalsite.deleting_experiment', true), '')
$$;

-- A version that was approved, imported or used, and a row that records what was sent, keep their content.
-- The arguments are the columns that may still change. The approval of an imported or used version also sets its time.
CREATE OR REPLACE FUNCTION evalsite_refuse_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    free text[] := coalesce(TG_ARGV, '{}')
        || CASE WHEN to_jsonb(OLD) ->> 'status' IN ('imported', 'used') THEN '{approved_at}'::text[] ELSE '{}' END;
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION '% % is in use: it cannot be deleted', TG_TABLE_NAME, OLD.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF to_jsonb(OLD) - free <> to_jsonb(NEW) - free THEN
        RAISE EXCEPTION '% % is frozen', TG_TABLE_NAME, OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Make a new version and change that.';
    END IF;
    IF to_jsonb(OLD) ->> 'status' <> 'draft' AND to_jsonb(NEW) ->> 'status' = 'draft' THEN
        RAISE EXCEPTION '% % is frozen: it cannot be a draft again', TG_TABLE_NAME, OLD.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

-- ## lib_statuschange

-- History is append-only. Only the link to a user may be cleared, together with the user; `actor` keeps the name.
CREATE TRIGGER lib_statuschange_no_update BEFORE UPDATE ON lib_statuschange
FOR EACH ROW WHEN (to_jsonb(OLD) - 'by_id' IS DISTINCT FROM to_jsonb(NEW) - 'by_id' OR NEW.by_id IS NOT NULL)
EXECUTE FUNCTION evalsite_refuse_change('history is append-only', 'Record a new change that corrects this one.');

CREATE TRIGGER lib_statuschange_no_delete BEFORE DELETE ON lib_statuschange
FOR EACH ROW WHEN (evalsite_deleting() <> '*')
EXECUTE FUNCTION evalsite_refuse_change('history is append-only', 'Record a new change that corrects this one.');

CREATE TRIGGER lib_statuschange_no_truncate BEFORE TRUNCATE ON lib_statuschange
FOR EACH STATEMENT WHEN (evalsite_deleting() <> '*')
EXECUTE FUNCTION evalsite_refuse_change('history is append-only', 'Create a new database instead.');
