-- The triggers of grading_app, by table, and its views. CONTRIBUTING.md, "A trigger", says how to change one.

-- ## grading_app_rubric, grading_app_grader, grading_app_panel, grading_app_panel_graders

-- An approved rubric never changes.
CREATE TRIGGER grading_app_rubric_frozen BEFORE UPDATE OR DELETE ON grading_app_rubric
FOR EACH ROW WHEN (OLD.status <> 'draft') EXECUTE FUNCTION evalsite_refuse_frozen('status', 'created_by_id');

-- A grader or a panel that has graded never changes. The first argument is the column of grade conditions that refers
-- to this row; the others are the columns that may still change.
CREATE OR REPLACE FUNCTION grading_app_refuse_in_use() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER grading_app_grader_frozen BEFORE UPDATE OR DELETE ON grading_app_grader
FOR EACH ROW EXECUTE FUNCTION grading_app_refuse_in_use('grader_id', 'archived_at', 'created_by_id');

CREATE TRIGGER grading_app_panel_frozen BEFORE UPDATE OR DELETE ON grading_app_panel
FOR EACH ROW EXECUTE FUNCTION grading_app_refuse_in_use('panel_id', 'created_by_id');

-- A panel that has graded keeps its members.
CREATE OR REPLACE FUNCTION grading_app_panel_graders_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER grading_app_panel_graders_frozen BEFORE INSERT OR UPDATE OR DELETE ON grading_app_panel_graders
FOR EACH ROW EXECUTE FUNCTION grading_app_panel_graders_frozen();

-- ## grading_app_ratingqueue, with its dimensions, conditions and answers

-- A queue that was open never changes, except for its status, its number of raters and its owner.
CREATE OR REPLACE FUNCTION grading_app_ratingqueue_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
-- The arguments are the columns that may still change.
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'queue % was open: its ratings stay', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.status = 'draft' OR to_jsonb(OLD) - TG_ARGV <> to_jsonb(NEW) - TG_ARGV THEN
        RAISE EXCEPTION 'queue % was open: what is asked never changes', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER grading_app_ratingqueue_frozen BEFORE UPDATE OR DELETE ON grading_app_ratingqueue
FOR EACH ROW WHEN (OLD.status <> 'draft')
EXECUTE FUNCTION grading_app_ratingqueue_frozen('status', 'raters_wanted', 'owner_id');

-- A queue opens only with an approved rubric.
CREATE OR REPLACE FUNCTION grading_app_ratingqueue_rubric_is_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM grading_app_rubric WHERE id = NEW.rubric_id AND status = 'draft' FOR SHARE;
    IF FOUND THEN
        RAISE EXCEPTION 'queue % asks by a rubric that is a draft: approve it first', NEW.name
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER grading_app_ratingqueue_rubric_is_frozen BEFORE INSERT OR UPDATE ON grading_app_ratingqueue
FOR EACH ROW WHEN (NEW.status <> 'draft' AND NEW.rubric_id IS NOT NULL)
EXECUTE FUNCTION grading_app_ratingqueue_rubric_is_frozen();

-- A queue that was open keeps what it asks about. The arguments are the column that names the queue, and the part of
-- the queue for the message. The answers of a closed queue leave and return only with the rows of their experiment.
CREATE OR REPLACE FUNCTION grading_app_refuse_open_queue() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    state text;
    is_moving boolean;
    part jsonb := CASE WHEN TG_OP = 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END;
BEGIN
    SELECT status, TG_TABLE_NAME = 'grading_app_ratedanswer' AND status = 'closed'
        AND experiment_id::text = evalsite_deleting()
    INTO state, is_moving FROM grading_app_ratingqueue WHERE id = (part ->> TG_ARGV[0])::bigint FOR SHARE;
    IF TG_OP = 'UPDATE' OR (state <> 'draft' AND is_moving IS NOT TRUE) THEN
        RAISE EXCEPTION 'a queue that was open keeps %', TG_ARGV[1] USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER grading_app_ratingqueue_dimensions_frozen
BEFORE INSERT OR UPDATE OR DELETE ON grading_app_ratingqueue_dimensions
FOR EACH ROW EXECUTE FUNCTION grading_app_refuse_open_queue('ratingqueue_id', 'its dimensions');

CREATE TRIGGER grading_app_ratingqueue_conditions_frozen
BEFORE INSERT OR UPDATE OR DELETE ON grading_app_ratingqueue_conditions
FOR EACH ROW EXECUTE FUNCTION grading_app_refuse_open_queue('ratingqueue_id', 'the answers it asks about');

CREATE TRIGGER grading_app_ratedanswer_frozen BEFORE INSERT OR UPDATE OR DELETE ON grading_app_ratedanswer
FOR EACH ROW EXECUTE FUNCTION grading_app_refuse_open_queue('queue_id', 'the answers it asks about');

-- ## grading_app_rating

-- A rating is given only while its queue is open and only on its scale. It keeps its rater, item, dimension and place,
-- and is never deleted. The ratings of a closed queue leave and return only with the rows of their experiment.
CREATE OR REPLACE FUNCTION grading_app_rating_follows_queue() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    state text;
    is_moving boolean;
    low float8;
    high float8;
    any_number boolean;
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.value IS NOT NULL AND NOT EXISTS (
            SELECT FROM grading_app_ratingqueue q JOIN grading_app_raterassignment a ON a.queue_id = q.id
            WHERE a.id = OLD.assignment_id AND q.status = 'closed' AND q.experiment_id::text = evalsite_deleting()
        ) THEN
            RAISE EXCEPTION 'rating % was given: it stays', OLD.id USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE'
        AND (OLD.assignment_id, OLD.item_id, OLD.rival_id, OLD.dimension_id, OLD.criterion, OLD.kind, OLD.position)
        IS DISTINCT FROM
        (NEW.assignment_id, NEW.item_id, NEW.rival_id, NEW.dimension_id, NEW.criterion, NEW.kind, NEW.position) THEN
        RAISE EXCEPTION 'rating % keeps its rater, item, dimension and place', OLD.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    -- FOR SHARE: a queue that is being closed waits for this rating, or this rating sees that it is closed.
    SELECT q.status, TG_OP = 'INSERT' AND q.status = 'closed' AND q.experiment_id::text = evalsite_deleting()
    INTO state, is_moving
    FROM grading_app_ratingqueue q JOIN grading_app_raterassignment a ON a.queue_id = q.id
    WHERE a.id = NEW.assignment_id FOR SHARE OF q;
    IF state <> 'open' AND is_moving IS NOT TRUE THEN
        RAISE EXCEPTION 'the queue of rating % is not open', NEW.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.value IS NOT NULL THEN
        -- The scale of the dimension or of the rubric: a criterion is 0 or 1, a label its number, a comparison 0 to 2.
        SELECT coalesce(d.scale_min, CASE r.kind WHEN 'score' THEN r.scale_min WHEN 'label' THEN 1 ELSE 0 END),
            coalesce(d.scale_max, CASE r.kind WHEN 'score' THEN r.scale_max WHEN 'criteria' THEN 1
                WHEN 'label' THEN jsonb_array_length(r.labels) WHEN 'pairwise' THEN 2 END),
            d.id IS NULL AND r.kind = 'score'
        INTO low, high, any_number
        FROM grading_app_raterassignment a JOIN grading_app_ratingqueue q ON q.id = a.queue_id
        LEFT JOIN runs_app_dimension d ON d.id = NEW.dimension_id LEFT JOIN grading_app_rubric r ON r.id = q.rubric_id
        WHERE a.id = NEW.assignment_id;
        IF (NEW.value BETWEEN low AND high AND (any_number OR NEW.value = trunc(NEW.value))) IS NOT TRUE THEN
            RAISE EXCEPTION 'rating % is not on the scale from % to %', NEW.value, low, high
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER grading_app_rating_follows_queue BEFORE INSERT OR UPDATE OR DELETE ON grading_app_rating
FOR EACH ROW EXECUTE FUNCTION grading_app_rating_follows_queue();

-- A rating keeps the answer that it rates.
CREATE OR REPLACE FUNCTION grading_app_rating_keeps_answer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.trial_id IS DISTINCT FROM NEW.trial_id THEN
        RAISE EXCEPTION 'rating % keeps its answer', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER grading_app_rating_keeps_answer BEFORE UPDATE ON grading_app_rating
FOR EACH ROW EXECUTE FUNCTION grading_app_rating_keeps_answer();

-- ## grading_app_grading, grading_app_preference: verdicts

-- Every write of verdicts increases `changes` of their grade conditions, so that cached aggregates are computed again.
-- Once a statement, because one statement writes the verdicts of a thousand replies.
CREATE OR REPLACE FUNCTION grading_app_count_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE grading_app_gradecondition SET changes = changes + 1
    WHERE id IN (SELECT DISTINCT condition_id FROM changed);
    RETURN NULL;
END $$;

CREATE TRIGGER grading_app_grading_count_insert AFTER INSERT ON grading_app_grading
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION grading_app_count_changes();

CREATE TRIGGER grading_app_grading_count_update AFTER UPDATE ON grading_app_grading
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION grading_app_count_changes();

CREATE TRIGGER grading_app_grading_count_delete AFTER DELETE ON grading_app_grading
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION grading_app_count_changes();

CREATE TRIGGER grading_app_preference_count_insert AFTER INSERT ON grading_app_preference
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION grading_app_count_changes();

CREATE TRIGGER grading_app_preference_count_update AFTER UPDATE ON grading_app_preference
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION grading_app_count_changes();

CREATE TRIGGER grading_app_preference_count_delete AFTER DELETE ON grading_app_preference
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION grading_app_count_changes();

-- Return whether this transaction replaces verdicts. grading_app.models.gradings.allow_superseding sets it.
CREATE OR REPLACE FUNCTION grading_app_superseding() RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT coalesce(current_setting('evalsite.superseding_verdicts', true), '') = 'on'
$$;

-- Return the unit that a verdict, given as its row, judges: grade condition, trial, and second trial of a preference.
CREATE OR REPLACE FUNCTION grading_app_unit_of_verdict(verdict jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
SELECT jsonb_build_array(
    verdict -> 'condition_id', coalesce(verdict -> 'trial_id', verdict -> 'trial_a_id'), verdict -> 'trial_b_id')
$$;

-- A verdict changes only in a transaction that replaces verdicts. It keeps its unit, and the former row is kept.
CREATE OR REPLACE FUNCTION grading_app_keep_former_verdicts() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stray bigint := (SELECT id FROM removed LIMIT 1);
BEGIN
    IF stray IS NULL THEN RETURN NULL; END IF;
    IF NOT grading_app_superseding() THEN
        RAISE EXCEPTION '% % is a verdict that was given: it never changes', TG_TABLE_NAME, stray
            USING ERRCODE = 'restrict_violation',
            HINT = 'Grade again with python manage.py grade NAME --force, which keeps the former verdicts.';
    END IF;
    SELECT r.id INTO stray FROM removed r LEFT JOIN added a ON a.id = r.id
    WHERE grading_app_unit_of_verdict(to_jsonb(a)) IS DISTINCT FROM grading_app_unit_of_verdict(to_jsonb(r)) LIMIT 1;
    IF stray IS NOT NULL THEN
        RAISE EXCEPTION '% % keeps its grade condition and its trials', TG_TABLE_NAME, stray
            USING ERRCODE = 'restrict_violation';
    END IF;
    INSERT INTO grading_app_supersededverdict (condition_id, trial_id, rival_id, content)
    SELECT r.condition_id, (unit ->> 1)::bigint, (unit ->> 2)::bigint, to_jsonb(r)
    FROM removed r JOIN added a ON a.id = r.id, grading_app_unit_of_verdict(to_jsonb(r)) AS unit
    WHERE to_jsonb(r) - 'created_at' <> to_jsonb(a) - 'created_at';
    RETURN NULL;
END $$;

CREATE TRIGGER grading_app_grading_append_only AFTER UPDATE ON grading_app_grading
REFERENCING OLD TABLE AS removed NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION grading_app_keep_former_verdicts();

CREATE TRIGGER grading_app_preference_append_only AFTER UPDATE ON grading_app_preference
REFERENCING OLD TABLE AS removed NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION grading_app_keep_former_verdicts();

-- Verdicts, former verdicts and adjudications are deleted only with their experiment. The argument is the rule for the
-- message. A transaction that replaces verdicts may also delete a verdict; the former row is kept.
CREATE OR REPLACE FUNCTION grading_app_refuse_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stray bigint;
BEGIN
    IF evalsite_deleting() = '*' THEN RETURN NULL; END IF;
    IF TG_TABLE_NAME IN ('grading_app_grading', 'grading_app_preference') AND grading_app_superseding() THEN
        INSERT INTO grading_app_supersededverdict (condition_id, trial_id, rival_id, content)
        SELECT r.condition_id, (unit ->> 1)::bigint, (unit ->> 2)::bigint, to_jsonb(r)
        FROM removed r, grading_app_unit_of_verdict(to_jsonb(r)) AS unit;
        RETURN NULL;
    END IF;
    SELECT r.id INTO stray FROM removed r LEFT JOIN grading_app_gradecondition c ON c.id = r.condition_id
    WHERE c.experiment_id::text IS DISTINCT FROM evalsite_deleting() LIMIT 1;
    IF stray IS NOT NULL THEN
        RAISE EXCEPTION '% % %', TG_TABLE_NAME, stray, TG_ARGV[0] USING ERRCODE = 'restrict_violation',
            HINT = 'To delete an experiment with all its rows: python manage.py experiment delete NAME';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER grading_app_grading_no_delete AFTER DELETE ON grading_app_grading
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION grading_app_refuse_deletion('is a verdict that was given: it goes only with its experiment');

CREATE TRIGGER grading_app_preference_no_delete AFTER DELETE ON grading_app_preference
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION grading_app_refuse_deletion('is a verdict that was given: it goes only with its experiment');

CREATE TRIGGER grading_app_grading_no_truncate BEFORE TRUNCATE ON grading_app_grading
FOR EACH STATEMENT EXECUTE FUNCTION evalsite_refuse_truncate();

CREATE TRIGGER grading_app_preference_no_truncate BEFORE TRUNCATE ON grading_app_preference
FOR EACH STATEMENT EXECUTE FUNCTION evalsite_refuse_truncate();

-- ## grading_app_supersededverdict, grading_app_adjudication

-- A former verdict never changes.
CREATE TRIGGER grading_app_supersededverdict_no_update BEFORE UPDATE ON grading_app_supersededverdict
FOR EACH ROW EXECUTE FUNCTION evalsite_refuse_change('former verdicts never change', 'Grade again instead.');

CREATE TRIGGER grading_app_supersededverdict_no_delete AFTER DELETE ON grading_app_supersededverdict
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION grading_app_refuse_deletion('goes only with its experiment');

CREATE TRIGGER grading_app_supersededverdict_no_truncate BEFORE TRUNCATE ON grading_app_supersededverdict
FOR EACH STATEMENT EXECUTE FUNCTION evalsite_refuse_truncate();

-- An adjudication never changes. A correction is a new row.
CREATE OR REPLACE FUNCTION grading_app_adjudication_no_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'adjudications are only added: % stays as it is', OLD.id USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER grading_app_adjudication_no_update BEFORE UPDATE ON grading_app_adjudication
FOR EACH ROW EXECUTE FUNCTION grading_app_adjudication_no_update();

CREATE TRIGGER grading_app_adjudication_no_delete AFTER DELETE ON grading_app_adjudication
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
EXECUTE FUNCTION grading_app_refuse_deletion('goes only with its experiment');

CREATE TRIGGER grading_app_adjudication_no_truncate BEFORE TRUNCATE ON grading_app_adjudication
FOR EACH STATEMENT EXECUTE FUNCTION evalsite_refuse_truncate();

-- ## grading_app_snapshot

-- A snapshot's row never changes. Its bundle names it.
CREATE TRIGGER grading_app_snapshot_frozen BEFORE UPDATE ON grading_app_snapshot
FOR EACH ROW EXECUTE FUNCTION evalsite_refuse_frozen('created_by_id');

-- ## grading_app_blindreading

-- A blind reading is a record: only the time of the revelation is set, and only once.
CREATE OR REPLACE FUNCTION grading_app_blindreading_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF evalsite_deleting() IN ('*', OLD.experiment_id::text) THEN RETURN OLD; END IF;
        RAISE EXCEPTION 'blind reading % goes only with its experiment', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.revealed_at IS NOT NULL OR to_jsonb(OLD) - 'revealed_at' <> to_jsonb(NEW) - 'revealed_at' THEN
        RAISE EXCEPTION 'blind reading % is a record: it never changes', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER grading_app_blindreading_record BEFORE UPDATE OR DELETE ON grading_app_blindreading
FOR EACH ROW EXECUTE FUNCTION grading_app_blindreading_record();

-- ## Views

-- The score of each answer by each grader, in one row; NULL without a score, and `missing` says why. The grader of a
-- rating is its dimension. A rule, a judge or a panel has a row for every answer of its experiment, graded or not. A
-- queue of raters is one grader, `person`, with the mean of its raters; a single one of them is `rater`. These two, and
-- adjudications, have rows only for the answers that people were asked about. Verdicts on two answers are no scores.
-- All branches have columns of the same types, so that the planner reads only the branch of the wanted kind.
CREATE OR REPLACE VIEW grading_app_answerscore AS
SELECT s.*, CASE WHEN s.score IS NOT NULL THEN '' WHEN s.status IN ('pending', 'running') THEN 'not run'
        WHEN s.status = 'cancelled' THEN 'cancelled'
        WHEN s.status = 'failed' AND s.error_class <> 'content_refused' THEN 'failed'
        WHEN s.status = 'failed' OR s.refused THEN 'refused' WHEN s.truncated THEN 'truncated'
        WHEN s.answer = '' THEN 'empty' WHEN s.is_graded THEN 'unreadable' ELSE 'not graded yet' END AS missing
FROM (
    SELECT 'rating'::text AS grader_kind, a.dimension_id AS grader_id, a.rating::float8 AS score, true AS is_graded,
        NULL::text AS score_raw, a.*
    FROM runs_app_answer a WHERE a.dimension_id IS NOT NULL
    UNION ALL
    SELECT gc.kind::text, gc.id, g.score, g.trial_id IS NOT NULL, g.score_raw, a.*
    FROM runs_app_answer a
    JOIN grading_app_gradecondition gc ON gc.experiment_id = a.experiment_id AND gc.kind IN ('rule', 'judge', 'panel')
    LEFT JOIN grading_app_grading g ON g.trial_id = a.trial_id AND g.condition_id = gc.id
    -- Not NOT EXISTS: with few rubrics, the planner would expect no row to be left, and read all conditions for each.
    WHERE coalesce((SELECT u.kind FROM grading_app_rubric u WHERE u.id = gc.rubric_id), '') <> 'pairwise'
    UNION ALL
    SELECT 'rater'::text, gc.id, g.score, true, g.score_raw, a.*
    FROM grading_app_gradecondition gc JOIN grading_app_grading g ON g.condition_id = gc.id
    JOIN runs_app_answer a ON a.trial_id = g.trial_id WHERE gc.kind = 'person'
    UNION ALL
    SELECT 'adjudicated'::text, gc.id, g.score, true, g.score_raw, a.*
    FROM grading_app_gradecondition gc JOIN grading_app_grading g ON g.condition_id = gc.id
    JOIN runs_app_answer a ON a.trial_id = g.trial_id WHERE gc.kind = 'adjudicated'
    UNION ALL
    SELECT 'person'::text, p.queue_id, p.score, true, NULL::text, a.*
    FROM (
        SELECT ra.queue_id, g.trial_id, avg(g.score) AS score
        FROM grading_app_grading g JOIN grading_app_gradecondition gc ON gc.id = g.condition_id
        JOIN grading_app_raterassignment ra ON ra.id = gc.assignment_id GROUP BY 1, 2
    ) p JOIN runs_app_answer a ON a.trial_id = p.trial_id
) s;
