-- The triggers of runs_app, by table, and its views. CONTRIBUTING.md, "A trigger", says how to change one.

-- ## Shared by several tables

-- Calls and their results are append-only: refuse a deletion, unless the transaction deletes the row's experiment.
-- Checked once a statement. The arguments are the rule for the message, the condition on a removed row `r` that is
-- protected, and the condition on `r` that it belongs to the experiment with the key $1.
CREATE OR REPLACE FUNCTION runs_app_refuse_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    permitted text := evalsite_deleting();
    stray bigint;
BEGIN
    IF permitted = '*' THEN RETURN NULL; END IF;
    EXECUTE format(
        'SELECT r.id FROM removed r WHERE %s AND ($1 = '''' OR (%s) IS NOT TRUE) LIMIT 1', TG_ARGV[1], TG_ARGV[2]
    ) INTO stray USING permitted;
    IF stray IS NOT NULL THEN
        RAISE EXCEPTION '% % %', TG_TABLE_NAME, stray, TG_ARGV[0] USING ERRCODE = 'restrict_violation',
            HINT = 'To delete an experiment with all its rows: python manage.py experiment delete NAME';
    END IF;
    RETURN NULL;
END $$;

-- Return whether a change of a row removes its raw response, keeps its hash and the time, and changes nothing else.
CREATE OR REPLACE FUNCTION runs_app_only_removes_raw_response(was jsonb, becomes jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
SELECT was ->> 'raw_response' IS NOT NULL AND becomes ->> 'raw_response' IS NULL AND was ->> 'raw_sha256' = ''
    AND becomes ->> 'raw_sha256' = encode(sha256(convert_to(was ->> 'raw_response', 'UTF8')), 'hex')
    AND becomes -> 'raw_removed_at' = to_jsonb(transaction_timestamp())
    AND was - '{raw_response,raw_sha256,raw_removed_at}'::text[]
        = becomes - '{raw_response,raw_sha256,raw_removed_at}'::text[]
$$;

-- ## runs_app_endpoint, runs_app_languagemodel

-- An endpoint in use keeps its provider, because a condition's snapshot names what was sent.
CREATE OR REPLACE FUNCTION runs_app_endpoint_provider_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM runs_app_condition c JOIN runs_app_languagemodel m ON m.id = c.model_id
            WHERE m.endpoint_id = OLD.id) THEN
        RAISE EXCEPTION 'endpoint % is in use: it keeps its provider %', OLD.name, OLD.provider
            USING ERRCODE = 'restrict_violation', HINT = 'Make a new endpoint.';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER runs_app_endpoint_provider_is_kept BEFORE UPDATE OF provider ON runs_app_endpoint
FOR EACH ROW WHEN (OLD.provider <> NEW.provider) EXECUTE FUNCTION runs_app_endpoint_provider_is_kept();

-- A model in use keeps its id and its provider, because a condition's snapshot names what was sent.
CREATE OR REPLACE FUNCTION runs_app_languagemodel_identity_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    used boolean := EXISTS (SELECT FROM runs_app_condition WHERE model_id = OLD.id);
BEGIN
    IF used AND NEW.model <> OLD.model THEN
        RAISE EXCEPTION 'model % is in use: it keeps its id %', OLD.name, OLD.model
            USING ERRCODE = 'restrict_violation', HINT = 'Make a new model.';
    END IF;
    IF NEW.endpoint_id = OLD.endpoint_id OR NOT used THEN RETURN NEW; END IF;
    -- Lock both endpoints first. A worker that claims at an endpoint holds its lock, and counts its claims in flight.
    PERFORM FROM runs_app_endpoint WHERE id IN (OLD.endpoint_id, NEW.endpoint_id) ORDER BY id FOR NO KEY UPDATE;
    IF (SELECT count(DISTINCT provider) FROM runs_app_endpoint WHERE id IN (OLD.endpoint_id, NEW.endpoint_id)) > 1 THEN
        RAISE EXCEPTION 'model % is in use: it keeps its provider', OLD.name
            USING ERRCODE = 'restrict_violation', HINT = 'Make a new model.';
    END IF;
    IF EXISTS (SELECT FROM runs_app_run r JOIN runs_app_condition c ON c.id = r.condition_id
            WHERE c.model_id = OLD.id AND r.n_running > 0) THEN
        RAISE EXCEPTION 'model % has calls in flight or in batches: it cannot be moved meanwhile', OLD.name
            USING ERRCODE = 'restrict_violation', HINT = 'Pause its runs until none is left.';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER runs_app_languagemodel_identity_is_kept BEFORE UPDATE OF model, endpoint_id ON runs_app_languagemodel
FOR EACH ROW EXECUTE FUNCTION runs_app_languagemodel_identity_is_kept();

-- The time of the last change of the route to a model is always recorded: an earlier preflight is outdated.
CREATE OR REPLACE FUNCTION runs_app_note_route_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.route_changed_at := clock_timestamp();
    RETURN NEW;
END $$;

CREATE TRIGGER runs_app_endpoint_route_changed BEFORE UPDATE OF provider, base_url, key_env ON runs_app_endpoint
FOR EACH ROW WHEN ((OLD.provider, OLD.base_url, OLD.key_env) IS DISTINCT FROM (NEW.provider, NEW.base_url, NEW.key_env))
EXECUTE FUNCTION runs_app_note_route_change();

CREATE TRIGGER runs_app_languagemodel_route_changed BEFORE UPDATE OF model, endpoint_id ON runs_app_languagemodel
FOR EACH ROW WHEN ((OLD.model, OLD.endpoint_id) IS DISTINCT FROM (NEW.model, NEW.endpoint_id))
EXECUTE FUNCTION runs_app_note_route_change();

-- ## runs_app_prompt, runs_app_sampler, runs_app_dimension, runs_app_textset, runs_app_itemtext

-- Approved prompts, samplers, dimensions and text sets never change.
CREATE TRIGGER runs_app_prompt_frozen BEFORE UPDATE OR DELETE ON runs_app_prompt
FOR EACH ROW WHEN (OLD.status <> 'draft') EXECUTE FUNCTION evalsite_refuse_frozen('status', 'created_by_id');

CREATE TRIGGER runs_app_sampler_frozen BEFORE UPDATE OR DELETE ON runs_app_sampler
FOR EACH ROW WHEN (OLD.status <> 'draft') EXECUTE FUNCTION evalsite_refuse_frozen('status', 'created_by_id');

CREATE TRIGGER runs_app_dimension_frozen BEFORE UPDATE OR DELETE ON runs_app_dimension
FOR EACH ROW WHEN (OLD.status <> 'draft') EXECUTE FUNCTION evalsite_refuse_frozen('status', 'created_by_id');

-- The condition that wrote a text set may be deleted with its experiment.
CREATE TRIGGER runs_app_textset_frozen BEFORE UPDATE OR DELETE ON runs_app_textset
FOR EACH ROW WHEN (OLD.status <> 'draft')
EXECUTE FUNCTION evalsite_refuse_frozen('status', 'created_by_id', 'written_by_id');

-- The texts of an approved text set never change.
CREATE OR REPLACE FUNCTION runs_app_itemtext_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    frozen text;
    forgotten text[] := '{trial_id,edited_by_id}';
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(OLD) - forgotten = to_jsonb(NEW) - forgotten THEN RETURN NEW; END IF;
    -- FOR SHARE: an approval in progress waits for this change, or this change sees the approval.
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

CREATE TRIGGER runs_app_itemtext_frozen BEFORE INSERT OR UPDATE OR DELETE ON runs_app_itemtext
FOR EACH ROW EXECUTE FUNCTION runs_app_itemtext_frozen();

-- ## runs_app_experiment, runs_app_manifest, runs_app_preregistration, runs_app_condition

-- Draws of a launched experiment are pinned. A draw of judges may be added, and then never changes either.
CREATE OR REPLACE FUNCTION runs_app_experiment_draws_are_pinned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.draws - 'judges' IS DISTINCT FROM NEW.draws - 'judges' OR EXISTS (
        SELECT FROM jsonb_each(coalesce(OLD.draws -> 'judges', '{}')) AS was
        WHERE NEW.draws -> 'judges' -> was.key IS DISTINCT FROM was.value)
    THEN
        RAISE EXCEPTION 'the draws of experiment % are pinned', OLD.slug
            USING ERRCODE = 'restrict_violation', HINT = 'Duplicate the experiment and draw anew there.';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER runs_app_experiment_draws_are_pinned BEFORE UPDATE OF draws ON runs_app_experiment
FOR EACH ROW WHEN (OLD.status <> 'draft' AND OLD.draws IS DISTINCT FROM NEW.draws)
EXECUTE FUNCTION runs_app_experiment_draws_are_pinned();

-- A manifest never changes.
CREATE TRIGGER runs_app_manifest_frozen BEFORE UPDATE ON runs_app_manifest
FOR EACH ROW EXECUTE FUNCTION evalsite_refuse_frozen('created_by_id');

-- A plan is frozen before the launch: no answer was planned yet. It never changes, and goes only with its experiment.
CREATE OR REPLACE FUNCTION runs_app_preregistration_precedes_launch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM runs_app_experiment WHERE id = NEW.experiment_id FOR NO KEY UPDATE;
    IF EXISTS (SELECT FROM runs_app_experiment WHERE id = NEW.experiment_id AND status <> 'draft')
        OR EXISTS (SELECT FROM runs_app_run r JOIN runs_app_condition c ON c.id = r.condition_id
            WHERE r.experiment_id = NEW.experiment_id AND c.stage = 'generate') THEN
        RAISE EXCEPTION 'experiment % was launched: a plan must precede the launch', NEW.experiment_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER runs_app_preregistration_precedes_launch BEFORE INSERT ON runs_app_preregistration
FOR EACH ROW EXECUTE FUNCTION runs_app_preregistration_precedes_launch();

CREATE TRIGGER runs_app_preregistration_frozen BEFORE UPDATE ON runs_app_preregistration
FOR EACH ROW EXECUTE FUNCTION evalsite_refuse_frozen('by_id');

CREATE TRIGGER runs_app_preregistration_no_delete AFTER DELETE ON runs_app_preregistration
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_refuse_deletion(
    'is frozen: it goes only with its experiment', 'true', 'r.experiment_id::text = $1');

-- A condition, which records what was asked, never changes. It is deleted only together with its experiment.
CREATE TRIGGER runs_app_condition_frozen BEFORE UPDATE ON runs_app_condition
FOR EACH ROW EXECUTE FUNCTION evalsite_refuse_frozen();

-- ## runs_app_run, runs_app_deletedrun

-- No trial refers to a run that does not exist. This replaces the foreign key, which is checked for each new trial.
CREATE OR REPLACE FUNCTION runs_app_run_trials_go_first() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- In the order of an index. After a deletion, the planner still expects trials, and would look through the table.
    PERFORM FROM runs_app_trial WHERE run_id = OLD.id ORDER BY status, id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'run % still has trials: they go first', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER runs_app_run_trials_go_first BEFORE DELETE ON runs_app_run
FOR EACH ROW EXECUTE FUNCTION runs_app_run_trials_go_first();

-- The cost of a deleted run remains part of its experiment's budget.
CREATE TRIGGER runs_app_deletedrun_no_update BEFORE UPDATE ON runs_app_deletedrun FOR EACH ROW
EXECUTE FUNCTION evalsite_refuse_change('what a deleted run cost never changes', 'Raise the budget instead.');

CREATE TRIGGER runs_app_deletedrun_no_delete AFTER DELETE ON runs_app_deletedrun
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_refuse_deletion(
    'is what a deleted run cost: it goes only with its experiment', 'true', 'r.experiment_id::text = $1');

CREATE TRIGGER runs_app_deletedrun_no_truncate BEFORE TRUNCATE ON runs_app_deletedrun
FOR EACH STATEMENT EXECUTE FUNCTION evalsite_refuse_truncate();

-- ## runs_app_trial

-- A done trial never changes, except that its raw response may be removed. Checked after the update, because a check
-- before it locks the row a second time.
CREATE OR REPLACE FUNCTION runs_app_trial_done_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF runs_app_only_removes_raw_response(to_jsonb(OLD), to_jsonb(NEW)) THEN RETURN NULL; END IF;
    RAISE EXCEPTION 'trial % is done: it never changes', OLD.id USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER runs_app_trial_done_is_final AFTER UPDATE ON runs_app_trial
FOR EACH ROW WHEN (OLD.status = 'done') EXECUTE FUNCTION runs_app_trial_done_is_final();

-- A trial keeps its place in the design. Checked after the update: a trigger before it locks each updated row first,
-- even if its columns are not updated.
CREATE OR REPLACE FUNCTION runs_app_trial_identity_is_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'trial % keeps its run, item, dimension and repetition', OLD.id
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER runs_app_trial_identity_is_fixed
AFTER UPDATE OF run_id, item_id, dimension_id, sample_idx, subject_id, rival_id ON runs_app_trial
FOR EACH ROW EXECUTE FUNCTION runs_app_trial_identity_is_fixed();

-- No attempt refers to a trial that does not exist. This replaces the foreign key, which is checked for each attempt.
CREATE OR REPLACE FUNCTION runs_app_trial_attempts_go_first() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept bigint := (SELECT t.id FROM removed t JOIN runs_app_attempt a ON a.trial_id = t.id LIMIT 1);
BEGIN
    IF kept IS NOT NULL THEN
        RAISE EXCEPTION 'trial % still has attempts: they go first', kept USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER runs_app_trial_attempts_go_first AFTER DELETE ON runs_app_trial
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_trial_attempts_go_first();

-- A done trial is deleted only with its run or its experiment.
CREATE TRIGGER runs_app_trial_done_stays AFTER DELETE ON runs_app_trial
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_refuse_deletion(
    'is done: it goes only with its run or its experiment', 'r.status = ''done''',
    'r.run_id IN (SELECT id FROM runs_app_run WHERE experiment_id::text = $1)');

CREATE TRIGGER runs_app_trial_no_truncate BEFORE TRUNCATE ON runs_app_trial
FOR EACH STATEMENT EXECUTE FUNCTION evalsite_refuse_truncate();

-- ## runs_app_attempt

-- An attempt is a call that was made: it never changes. A late answer completes the row of a lost call, the deletion
-- of a worker's row clears the link to it, and its raw response may be removed.
CREATE OR REPLACE FUNCTION runs_app_attempt_no_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.outcome = 'lost' AND NEW.outcome = 'late'
        AND (OLD.id, OLD.trial_id, OLD.run_id, OLD.token, OLD.call)
            = (NEW.id, NEW.trial_id, NEW.run_id, NEW.token, NEW.call) THEN
        RETURN NEW;
    END IF;
    IF NEW.worker_id IS NULL AND to_jsonb(OLD) - 'worker_id' = to_jsonb(NEW) - 'worker_id' THEN RETURN NEW; END IF;
    IF runs_app_only_removes_raw_response(to_jsonb(OLD), to_jsonb(NEW)) THEN RETURN NEW; END IF;
    RAISE EXCEPTION 'attempt % is a call that was made: it never changes', OLD.id
        USING ERRCODE = 'restrict_violation', HINT = 'Only the late answer of a lost call completes its row.';
END $$;

CREATE TRIGGER runs_app_attempt_no_update BEFORE UPDATE ON runs_app_attempt
FOR EACH ROW EXECUTE FUNCTION runs_app_attempt_no_update();

-- An attempt is deleted only with its experiment.
CREATE TRIGGER runs_app_attempt_no_delete AFTER DELETE ON runs_app_attempt
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_refuse_deletion(
    'is a call that was made: it goes only with its experiment', 'true',
    'r.run_id IN (SELECT id FROM runs_app_run WHERE experiment_id::text = $1)');

CREATE TRIGGER runs_app_attempt_no_truncate BEFORE TRUNCATE ON runs_app_attempt
FOR EACH STATEMENT EXECUTE FUNCTION evalsite_refuse_truncate();

-- The ledger always equals the sums of its attempts, whatever code writes them. The argument is 1 to add the changed
-- rows to it and -1 to subtract them. Each database session writes entries of its own, so none waits for another.
-- A call without a known list price saves nothing.
CREATE OR REPLACE FUNCTION runs_app_enter_attempts() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    sign integer := TG_ARGV[0];
BEGIN
    INSERT INTO runs_app_ledgerentry AS t (
        run_id, at, session, attempts, answered, reused, input_tokens, output_tokens, reasoning_tokens,
        cache_read_tokens, cache_write_tokens, list_usd, paid_usd, cache_saved_usd, batch_saved_usd,
        reuse_saved_usd, unpriced, kept_usd, empty, truncated, refused, unparsed
    )
    SELECT a.run_id, date_bin('15 minutes', a.finished_at, 'epoch'), pg_backend_pid(),
        sign * sum(1), sign * sum((a.outcome = 'ok')::int), sign * sum((a.outcome = 'cached')::int),
        sign * sum(coalesce(a.input_tokens, 0)), sign * sum(coalesce(a.output_tokens, 0)),
        sign * sum(coalesce(a.reasoning_tokens, 0)),
        sign * sum(coalesce(a.cache_read_tokens, 0)), sign * sum(coalesce(a.cache_write_tokens, 0)),
        sign * sum(CASE WHEN a.cost_usd IS NULL THEN 0 ELSE coalesce(a.list_usd, a.cost_usd) END),
        sign * sum(coalesce(a.cost_usd, 0)),
        sign * sum(CASE WHEN a.outcome <> 'cached' AND NOT a.batched
            THEN coalesce(a.list_usd - a.cost_usd, 0) ELSE 0 END),
        sign * sum(CASE WHEN a.outcome <> 'cached' AND a.batched
            THEN coalesce(a.list_usd - a.cost_usd, 0) ELSE 0 END),
        sign * sum(CASE WHEN a.outcome = 'cached' THEN coalesce(a.list_usd - a.cost_usd, 0) ELSE 0 END),
        sign * sum((a.cost_usd IS NULL)::int), sign * sum(coalesce(a.kept_usd, 0)),
        sign * sum((a.outcome IN ('ok', 'cached') AND a.empty)::int),
        sign * sum((a.outcome IN ('ok', 'cached') AND a.truncated)::int),
        sign * sum((a.outcome IN ('ok', 'cached') AND a.refused)::int),
        sign * sum((a.outcome IN ('ok', 'cached') AND a.unparsed)::int)
    FROM changed a
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (run_id, at, session) DO UPDATE SET
        attempts = t.attempts + excluded.attempts, answered = t.answered + excluded.answered,
        reused = t.reused + excluded.reused, input_tokens = t.input_tokens + excluded.input_tokens,
        output_tokens = t.output_tokens + excluded.output_tokens,
        reasoning_tokens = t.reasoning_tokens + excluded.reasoning_tokens,
        cache_read_tokens = t.cache_read_tokens + excluded.cache_read_tokens,
        cache_write_tokens = t.cache_write_tokens + excluded.cache_write_tokens,
        list_usd = t.list_usd + excluded.list_usd, paid_usd = t.paid_usd + excluded.paid_usd,
        cache_saved_usd = t.cache_saved_usd + excluded.cache_saved_usd,
        batch_saved_usd = t.batch_saved_usd + excluded.batch_saved_usd,
        reuse_saved_usd = t.reuse_saved_usd + excluded.reuse_saved_usd, unpriced = t.unpriced + excluded.unpriced,
        kept_usd = t.kept_usd + excluded.kept_usd, empty = t.empty + excluded.empty,
        truncated = t.truncated + excluded.truncated, refused = t.refused + excluded.refused,
        unparsed = t.unparsed + excluded.unparsed;
    RETURN NULL;
END $$;

CREATE TRIGGER runs_app_attempt_ledger_add AFTER INSERT ON runs_app_attempt
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_attempts('1');

CREATE TRIGGER runs_app_attempt_ledger_add_changed AFTER UPDATE ON runs_app_attempt
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_attempts('1');

CREATE TRIGGER runs_app_attempt_ledger_remove_changed AFTER UPDATE ON runs_app_attempt
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_attempts('-1');

-- ## runs_app_preflight

-- A preflight keeps who asked for it, and its state only advances: waiting, running, ended. Once it ended it never
-- changes. A late answer completes the row of a lost call, and the deletion of a user clears the link to the user.
CREATE OR REPLACE FUNCTION runs_app_preflight_no_update() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was_lost boolean := OLD.status = 'unverified' AND OLD.error_class = 'worker_lost';
BEGIN
    IF (OLD.id, OLD.model_id, OLD.experiment_id, OLD.by_id, OLD.actor, OLD.asked_at)
        IS NOT DISTINCT FROM (NEW.id, NEW.model_id, NEW.experiment_id, NEW.by_id, NEW.actor, NEW.asked_at) AND (
        OLD.status = 'waiting'
        OR OLD.started_at IS NOT DISTINCT FROM NEW.started_at AND (
            OLD.status = 'running' AND NEW.status <> 'waiting'
            OR was_lost AND NEW.status NOT IN ('waiting', 'running'))) THEN
        RETURN NEW;
    END IF;
    IF NEW.by_id IS NULL AND to_jsonb(OLD) - 'by_id' = to_jsonb(NEW) - 'by_id' THEN RETURN NEW; END IF;
    RAISE EXCEPTION 'preflight % is a call that was made: it never changes', OLD.id
        USING ERRCODE = 'restrict_violation', HINT = 'Ask for a new preflight instead.';
END $$;

CREATE TRIGGER runs_app_preflight_no_update BEFORE UPDATE ON runs_app_preflight
FOR EACH ROW EXECUTE FUNCTION runs_app_preflight_no_update();

-- A preflight that was made is deleted only with its experiment.
CREATE TRIGGER runs_app_preflight_no_delete AFTER DELETE ON runs_app_preflight
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_refuse_deletion(
    'is a call that was made: it goes only with its experiment', 'r.started_at IS NOT NULL',
    'r.experiment_id::text = $1');

CREATE TRIGGER runs_app_preflight_no_truncate BEFORE TRUNCATE ON runs_app_preflight
FOR EACH STATEMENT EXECUTE FUNCTION evalsite_refuse_truncate();

-- The ledger contains every preflight that was made, as it contains attempts. A preflight's reply is not a result, so
-- it is not counted as empty, truncated, refused or unparsed.
CREATE OR REPLACE FUNCTION runs_app_enter_preflights() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    sign integer := TG_ARGV[0];
BEGIN
    INSERT INTO runs_app_ledgerentry AS t (
        experiment_id, model_id, at, attempts, answered, input_tokens, output_tokens, reasoning_tokens,
        cache_read_tokens, cache_write_tokens, list_usd, paid_usd, cache_saved_usd, unpriced, kept_usd, reused,
        batch_saved_usd, reuse_saved_usd, empty, truncated, refused, unparsed
    )
    SELECT p.experiment_id, p.model_id, date_bin('15 minutes', p.finished_at, 'epoch'),
        sign * sum(1), sign * sum((p.status = 'ok')::int),
        sign * sum(coalesce(p.input_tokens, 0)), sign * sum(coalesce(p.output_tokens, 0)),
        sign * sum(coalesce(p.reasoning_tokens, 0)),
        sign * sum(coalesce(p.cache_read_tokens, 0)), sign * sum(coalesce(p.cache_write_tokens, 0)),
        sign * sum(CASE WHEN p.cost_usd IS NULL THEN 0 ELSE coalesce(p.list_usd, p.cost_usd) END),
        sign * sum(coalesce(p.cost_usd, 0)),
        sign * sum(coalesce(p.list_usd - p.cost_usd, 0)),
        sign * sum((p.cost_usd IS NULL)::int), sign * sum(coalesce(p.kept_usd, 0)),
        0, 0, 0, 0, 0, 0, 0
    FROM changed p
    WHERE p.started_at IS NOT NULL AND p.finished_at IS NOT NULL
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (experiment_id, model_id, at) WHERE run_id IS NULL DO UPDATE SET
        attempts = t.attempts + excluded.attempts, answered = t.answered + excluded.answered,
        input_tokens = t.input_tokens + excluded.input_tokens,
        output_tokens = t.output_tokens + excluded.output_tokens,
        reasoning_tokens = t.reasoning_tokens + excluded.reasoning_tokens,
        cache_read_tokens = t.cache_read_tokens + excluded.cache_read_tokens,
        cache_write_tokens = t.cache_write_tokens + excluded.cache_write_tokens,
        list_usd = t.list_usd + excluded.list_usd, paid_usd = t.paid_usd + excluded.paid_usd,
        cache_saved_usd = t.cache_saved_usd + excluded.cache_saved_usd, unpriced = t.unpriced + excluded.unpriced,
        kept_usd = t.kept_usd + excluded.kept_usd;
    RETURN NULL;
END $$;

CREATE TRIGGER runs_app_preflight_ledger_add AFTER INSERT ON runs_app_preflight
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_preflights('1');

CREATE TRIGGER runs_app_preflight_ledger_add_changed AFTER UPDATE ON runs_app_preflight
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_preflights('1');

CREATE TRIGGER runs_app_preflight_ledger_remove_changed AFTER UPDATE ON runs_app_preflight
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_preflights('-1');

-- ## runs_app_ledgerentry

-- Only triggers write the ledger. They write at a depth above 0; the statements of a session are at depth 0.
CREATE TRIGGER runs_app_ledgerentry_only_by_triggers BEFORE INSERT OR UPDATE ON runs_app_ledgerentry
FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)
EXECUTE FUNCTION evalsite_refuse_change('the ledger follows its calls', 'Write the attempts; the ledger adds them up.');

-- Entries are deleted only with their experiment.
CREATE TRIGGER runs_app_ledgerentry_no_delete AFTER DELETE ON runs_app_ledgerentry
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_refuse_deletion(
    'is part of the ledger: it goes only with its experiment', 'true',
    'r.experiment_id::text = $1 OR r.run_id IN (SELECT id FROM runs_app_run WHERE experiment_id::text = $1)');

CREATE TRIGGER runs_app_ledgerentry_no_truncate BEFORE TRUNCATE ON runs_app_ledgerentry
FOR EACH STATEMENT EXECUTE FUNCTION evalsite_refuse_truncate();

-- ## runs_app_annotation

-- An annotation keeps what it is on, its kind and its author. Its former text, with author and time, is always kept.
CREATE OR REPLACE FUNCTION runs_app_annotation_keeps_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.item_id, OLD.trial_id, OLD.experiment_id, OLD.kind, OLD.author_id, OLD.created_at)
        IS DISTINCT FROM (NEW.item_id, NEW.trial_id, NEW.experiment_id, NEW.kind, NEW.author_id, NEW.created_at) THEN
        RAISE EXCEPTION 'annotation % keeps what it is on, its kind and its author', OLD.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.removed THEN
        RAISE EXCEPTION 'annotation % is removed: it never changes', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Add a new one.';
    END IF;
    NEW.former := OLD.former || jsonb_build_object(
        'text', OLD.text,
        'by', (SELECT username FROM auth_user WHERE id = coalesce(OLD.changed_by_id, OLD.author_id)),
        'at', coalesce(OLD.changed_at, OLD.created_at)
    );
    RETURN NEW;
END $$;

CREATE TRIGGER runs_app_annotation_keeps_history BEFORE UPDATE ON runs_app_annotation
FOR EACH ROW EXECUTE FUNCTION runs_app_annotation_keeps_history();

-- ## Views

-- An answer is a trial of the design itself, with its run and its condition. The calls of judges and of writers of
-- rubrics are trials, too, but never answers. The planner leaves out the join of items if no column of them is read.
CREATE OR REPLACE VIEW runs_app_answer AS
SELECT t.id AS trial_id, t.run_id, r.experiment_id, r.wave_id, r.condition_id, c.model_id, c.prompt_id, c.sampler_id,
    t.item_id, i.category, i.excluded, t.dimension_id, t.sample_idx, t.status, t.error_class, t.attempts, t.from_cache,
    t.answer, t.reasoning, t.parse_error, t.rating, t.truncated, t.refused, t.served_model, t.served_provider,
    t.input_tokens, t.output_tokens, t.cost_usd, t.latency_ms
FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id JOIN runs_app_condition c ON c.id = r.condition_id
    LEFT JOIN datasets_app_item i ON i.id = t.item_id
WHERE c.stage = 'generate';
