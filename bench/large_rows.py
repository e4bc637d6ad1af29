"""The SQL that makes the rows of a large database, for SQLite and Postgres; `bench.large_database` executes it.

Records are numbered, and their ids are computed from their numbers. The table `turns`, which is dropped in the end,
says to which agent and conversation each run belongs; all else is selected from it or from a series of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.storage.records.organizations import DEFAULT_ACTOR

DAYS = 5  # less than events and traces are kept, so that a server does not begin with deleting them
BUSY, TALKATIVE, ORDINARY = 0, 1, 2  # numbers of agents; the ordinary ones begin with this
CONTEXT_TURNS = 200  # of the long conversation
TOOLS = 200
WAITING_SHARE = 20  # one approval of so many still waits

ORG, USER = f"'{DEFAULT_ACTOR.org_id}'", f"'{DEFAULT_ACTOR.user_id}'"
RUN_COLUMNS = (
    "id, org_id, agent_id, conversation_id, in_default_conversation, status, stop_reason, turn_id, background, queued, "
    "created_at, created_by, completed_at, lease_owner, lease_epoch, lease_expires_at, cancel_rollback, last_event, "
    "ttft_ns, total_duration_ns, num_steps, tools_used, metadata, request, callback_url"
)
MESSAGE_COLUMNS = "id, org_id, agent_id, conversation_id, seq, created_at, run_id, step_id, body"
CALL_COLUMNS = (
    "step_id, call_id, org_id, agent_id, conversation_id, run_id, turn_id, position, name, arguments, status, "
    "client_side, executed, returned, digest, notes, created_at, started_at, settled_at, approval_id, asked_at"
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the two databases write differently."""

    series: str
    hex: str
    json: str
    bytes: str


SQLITE = Dialect(
    series="WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {}) SELECT i FROM n",
    hex="printf('%0{1}x', {0})",
    json="{}",
    bytes="zeroblob(800)",
)
POSTGRES = Dialect(
    series="SELECT i FROM generate_series(0, {} - 1::bigint) AS i",
    hex="lpad(to_hex({0}), {1}, '0')",
    json="({})::jsonb",
    bytes="decode(repeat('00', 800), 'hex')",
)


def record_id(kind: str, number: int) -> str:
    return f"{kind}-{number * 2654435761 % 4294967296:08x}-0000-4000-8000-{number:012x}"


def statements(sql: Dialect, count: int, agents: int, now: int, model: str, *, active: bool) -> Iterator[str]:
    """INSERT statements for this many runs and agents, in order; `now` is in microseconds."""
    branches = max(agents // 10, 5)  # conversations of the busy agent, beside its default one
    long_every = 20 if count > 100_000 else 2  # one turn of so many that could belong to the long conversation does
    last_long_turn = count // 10 // long_every
    span = DAYS * 86_400_000_000
    began = now - span

    def ident(kind: str, number: str) -> str:
        """The id of a record, as `record_id` computes it."""
        spread = sql.hex.format(f"({number}) * 2654435761 % 4294967296", 8)
        return f"'{kind}-' || {spread} || '-0000-4000-8000-' || {sql.hex.format(number, 12)}"

    def numbers(many: int) -> str:
        return f"({sql.series.format(many)}) AS numbers"

    def document(text: str) -> str:
        return sql.json.format(text)

    empty, empty_list = document("'{}'"), document("'[]'")
    stamp = f"{began} + i, {began} + i, {USER}"

    # ---- agents and what they use
    instructions = f'{{"system":"You are a lighthouse keeper.","model":"{model}","model_settings":{{}},"secrets":{{}}}}'
    yield f"""INSERT INTO agents (id, org_id, name, last_stop_reason, last_run_completion, document, created_at,
        updated_at, created_by) SELECT {ident("agent", "i")}, {ORG}, 'keeper-' || i, 'end_turn', {began} + i,
        {document(f"'{instructions}'")}, {stamp} FROM {numbers(agents)}"""
    yield f"INSERT INTO agent_tags SELECT {ident('agent', 'i')}, 'everyone' FROM {numbers(agents)}"
    yield f"INSERT INTO agent_tags SELECT {ident('agent', 'i')}, 'tag-' || i % 1000 FROM {numbers(agents)}"
    source = '{"description":"Say how deep it is.","source_code":"def measure() -> str: ...","json_schema":{}}'
    yield f"""INSERT INTO tools (id, org_id, name, tool_type, document, created_at, updated_at, created_by)
        SELECT {ident("tool", "i")}, {ORG}, 'measure_' || i, 'custom', {document(f"'{source}'")}, {stamp}
        FROM {numbers(TOOLS)}"""
    yield f"""INSERT INTO agent_tools (agent_id, tool_id, position)
        SELECT {ident("agent", "i")}, {ident("tool", "0")}, 1 FROM {numbers(agents)}"""
    yield f"""INSERT INTO blocks (id, org_id, label, value, is_template, document, created_at, updated_at, created_by)
        SELECT {ident("block", "i")}, {ORG}, 'human', 'Person ' || i, false, {empty}, {stamp} FROM {numbers(agents)}"""
    yield f"""INSERT INTO agent_blocks (agent_id, block_id, position)
        SELECT {ident("agent", "i")}, {ident("block", "i")}, 1 FROM {numbers(agents)}"""
    yield f"""INSERT INTO agent_blocks (agent_id, block_id, position)
        SELECT {ident("agent", "i")}, {ident("block", "0")}, 2 FROM {numbers(agents)} WHERE i > 0"""
    yield f"""INSERT INTO archives (id, org_id, name, document, created_at, updated_at, created_by)
        SELECT {ident("archive", "i")}, {ORG}, 'log', {empty}, {stamp} FROM {numbers(agents // 10)}"""
    yield f"""INSERT INTO agent_archives (agent_id, archive_id, position)
        SELECT {ident("agent", "i")}, {ident("archive", "i")}, 1 FROM {numbers(agents // 10)}"""
    yield f"""INSERT INTO passages (id, org_id, archive_id, text, document, created_at, updated_at, created_by)
        SELECT {ident("passage", "i")}, {ORG}, CASE WHEN i % 2 = 0 THEN {ident("archive", "0")}
        ELSE {ident("archive", f"i % {agents // 10}")} END, 'The depth was ' || i || ' fathoms.', {empty}, {stamp}
        FROM {numbers(agents)}"""

    # ---- conversations: the default ones have the numbers of their agents, then come the busy agent's
    yield f"""INSERT INTO conversations (id, org_id, agent_id, is_default, next_seq, version, document, created_at,
        updated_at, created_by) SELECT {ident("conv", "i")}, {ORG}, CASE WHEN i < {agents} THEN {ident("agent", "i")}
        ELSE {ident("agent", str(BUSY))} END, i < {agents}, 1000000, 1000000, {empty}, {stamp}
        FROM {numbers(agents + branches)}"""
    yield f"""INSERT INTO lineage (conversation_id, ancestor_id)
        SELECT {ident("conv", "i")}, {ident("conv", "i")} FROM {numbers(agents + branches)}"""
    system = document("""'{"type":"system","text":"You are a lighthouse keeper."}'""")
    yield f"""INSERT INTO messages ({MESSAGE_COLUMNS}) SELECT {ident("message", "i")}, {ORG},
        CASE WHEN i < {agents} THEN {ident("agent", "i")} ELSE {ident("agent", str(BUSY))} END, {ident("conv", "i")}, 0,
        {began} + i, NULL, NULL, {system} FROM {numbers(agents + branches)}"""
    yield f"""INSERT INTO context (conversation_id, position, message_id)
        SELECT {ident("conv", "i")}, 0, {ident("message", "i")} FROM {numbers(agents + branches)}"""

    # ---- whose runs they are: of ten turns three are the busy agent's, and one may be of the long conversation
    ordinary = f"i % {agents - ORDINARY} + {ORDINARY}"
    long = f"i % 10 = 3 AND i / 10 % {long_every} = 0"
    busy_turn = "(i / 10 * 3 + i % 10)"
    yield f"""CREATE TABLE turns AS SELECT i, owner, line, turn, {began} + i * {span // count} AS created_at,
        {ident("run", "i")} AS run_id, {ident("step", "i")} AS step_id, {ident("agent", "owner")} AS agent_id,
        {ident("conv", "line")} AS conversation_id FROM (SELECT i,
        CASE WHEN i % 10 < 3 THEN {BUSY} WHEN {long} THEN {TALKATIVE} ELSE {ordinary} END AS owner,
        CASE WHEN i % 10 < 3 THEN {agents} + {busy_turn} % {branches} WHEN {long} THEN {TALKATIVE} ELSE {ordinary} END
        AS line, CASE WHEN i % 10 < 3 THEN {busy_turn} / {branches} WHEN {long} THEN i / 10 / {long_every}
        ELSE i / {agents - ORDINARY} END AS turn FROM {numbers(count)}) AS owned"""
    rested = "CASE WHEN i % 50 = 7 THEN 'failed' WHEN i % 100 = 8 THEN 'cancelled' ELSE 'completed' END"
    stopped = """CASE WHEN i % 50 = 7 THEN 'error' WHEN i % 100 = 8 THEN 'cancelled'
        WHEN i % 100 = 6 THEN 'requires_approval' ELSE 'end_turn' END"""
    request = document("""'{"messages":[],"answers":null,"run_type":"send_message","max_steps":50,"body_digest":""}'""")
    kind = document("""'{"run_type":"send_message"}'""")
    yield f"""INSERT INTO runs ({RUN_COLUMNS}) SELECT run_id, {ORG}, agent_id, conversation_id, line < {agents},
        {rested}, {stopped}, run_id, i % 4 = 0, false, created_at, {USER}, created_at + 1000000, NULL, 1, NULL, false,
        5, 300000000, 500000000 + i * 7919 % 1000000007, 1, {empty_list}, {kind}, {request},
        CASE WHEN i % 50 = 0 THEN 'https://example.com/done' END FROM turns"""
    said = """'{"type":"user","parts":[{"type":"text","text":"What do you see in watch ' || i || '?"}]}'"""
    replied = """'{"type":"assistant","parts":[{"type":"text","text":"Only water, and light ' || i || ' turns."}]}'"""
    first = agents + branches
    for offset, step, body in ((0, "NULL", said), (1, "step_id", replied)):
        message = ident("message", f"({first} + 2 * i + {offset})")
        yield f"""INSERT INTO messages ({MESSAGE_COLUMNS}) SELECT {message}, {ORG}, agent_id, conversation_id,
            2 * turn + 1 + {offset}, created_at + {offset}, run_id, {step}, {document(body)} FROM turns"""
        yield f"""INSERT INTO context (conversation_id, position, message_id)
            SELECT conversation_id, 2 * turn + 1 + {offset}, {message} FROM turns
            WHERE line <> {TALKATIVE} OR turn >= {last_long_turn - CONTEXT_TURNS}"""
    yield f"""INSERT INTO steps (id, org_id, run_id, agent_id, created_at, status, stop_reason, model, provider_name,
        prompt_tokens, completion_tokens, tags, feedback) SELECT step_id, {ORG}, run_id, agent_id, created_at,
        'success', 'end_turn', 'gpt-4o-mini', 'openai-proxy', 300, 12, {empty_list},
        CASE WHEN i % 1000 = 9 THEN 'positive' END FROM turns"""
    yield """INSERT INTO events (run_id, first_seq, last_seq, created_at, body)
        SELECT run_id, 1, 5, created_at, 'data: {"seq_id":' || i || '}\n\n' FROM turns"""
    yield """INSERT INTO run_keys (conversation_id, key, run_id, body_digest, created_at)
        SELECT conversation_id, 'key-' || i, run_id, 'digest', created_at FROM turns WHERE i % 5 = 0"""
    yield f"""INSERT INTO traces (id, org_id, run_id, step_id, agent_id, attempt, created_at, call_type, about, body)
        SELECT {ident("provider_trace", "i")}, {ORG}, run_id, step_id, agent_id, 1, created_at, 'agent_step', {empty},
        {sql.bytes} FROM turns WHERE i % 10 = 1"""
    yield f"""INSERT INTO outbox (id, org_id, run_id, url, payload, last_event, status, attempts, created_at,
        next_attempt_at) SELECT {ident("webhook", "i")}, {ORG}, run_id, 'https://example.com/done', {empty}, 5,
        'delivered', 1, created_at, created_at FROM turns WHERE i % 50 = 0"""

    # ---- tool calls, and approvals with what was decided; the newest still wait
    yield f"""INSERT INTO ledger ({CALL_COLUMNS}) SELECT step_id, 'call-1', {ORG}, agent_id, conversation_id, run_id,
        run_id, 0, 'measure_0', '{{}}', 'settled', false, true, true, 'digest', {empty_list}, created_at, created_at,
        created_at, NULL, NULL FROM turns WHERE i % 10 = 5"""
    used = f"SELECT run_id, 'measure_0', {ORG} FROM turns WHERE i % 10 = 5"
    yield f"INSERT INTO run_tools (run_id, tool, org_id) {used}"
    waits = f"i >= {count - count // WAITING_SHARE} AND line <> {TALKATIVE}"
    yield f"""INSERT INTO ledger ({CALL_COLUMNS}) SELECT step_id, 'call-1', {ORG}, agent_id, conversation_id, run_id,
        run_id, 0, 'pay', '{{}}', CASE WHEN {waits} THEN 'awaiting' ELSE 'settled' END, false, NOT ({waits}),
        NOT ({waits}), 'digest', {empty_list}, created_at, NULL, NULL, {ident("approval", "i")}, created_at
        FROM turns WHERE i % 100 = 6"""
    yield f"""INSERT INTO decisions (org_id, step_id, call_id, kind, decided_by, decided_at, tool_name, tool_digest,
        arguments_digest, previous_hash, hash) SELECT {ORG}, step_id, 'call-1', 'approved', {USER}, created_at, 'pay',
        'digest', 'digest', 'hash', 'hash' FROM turns WHERE i % 100 = 6 AND NOT ({waits}) ORDER BY i"""
    for news in ("requested", "decided"):
        yield f"""INSERT INTO announcements (org_id, kind, approval_id, created_at)
            SELECT {ORG}, '{news}', {ident("approval", "i")}, created_at FROM turns WHERE i % 100 = 6 ORDER BY i"""
    yield f"""INSERT INTO allowances (id, org_id, agent_id, conversation_id, tool_name, created_at, revoked_at)
        SELECT {ident("allowance", "i")}, {ORG}, agent_id, conversation_id, 'pay', created_at,
        CASE WHEN i % 400 <> 6 THEN created_at END FROM turns WHERE i % 100 = 6"""
    yield "DROP TABLE turns"
    if active:
        # One run drives each of the busy agent's first conversations, and more wait behind it.
        for offset, status, queued, owner in (
            (0, "running", "false", "'far-away:1:1'"),
            (300, "created", "true", "NULL"),
        ):
            run, line = ident("run", f"({count} + {offset} + i)"), ident("conv", f"({agents} + i % {branches})")
            yield f"""INSERT INTO runs ({RUN_COLUMNS}) SELECT {run}, {ORG}, {ident("agent", str(BUSY))}, {line}, false,
                '{status}', NULL, {run}, false, {queued}, {now} + i, {USER}, NULL, {owner}, 1, {now} + {span}, false, 0,
                NULL, NULL, 0, {empty_list}, {kind}, {request}, NULL FROM {numbers(min(300, branches))}"""
