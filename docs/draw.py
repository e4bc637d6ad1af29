"""Draws the pages that repeat what the code says: docs/lifecycles.md and docs/settings.md.

Run it after changing `core/lifecycle.py` or `settings.py`: `.venv/bin/python docs/draw.py`. `tests/test_docs.py` fails
while a page and the code differ. It never invents anything: labels on arrows are words, the arrows are the tables'.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.core.lifecycle import ACTIVE, CALL_CHANGES, OPEN_CALLS, RUN_CHANGES
from holdfast.settings import describe

HERE = Path(__file__).parent

RUN_WORDS = {
    ("created", "running"): "its turn comes",
    ("created", "completed"): "nothing to do",
    ("created", "failed"): "its input no longer makes sense",
    ("created", "cancelled"): "taken out of the queue",
    ("running", "running"): "a checkpoint",
    ("running", "completed"): "answered, out of steps, or asks a human",
    ("running", "failed"): "an error",
    ("running", "cancelled"): "stopped",
    ("completed", "cancelled"): "stopped while it asks a human",
}
CALL_WORDS = {
    ("awaiting", "allowed"): "approved, waits for its turn",
    ("awaiting", "started"): "approved",
    ("awaiting", "settled"): "answered",
    ("awaiting", "denied"): "denied, or void",
    ("awaiting", "cancelled"): "run stopped",
    ("allowed", "started"): "about to run",
    ("allowed", "settled"): "refused by a rule",
    ("allowed", "cancelled"): "run stopped",
    ("started", "settled"): "result known",
    ("started", "cancelled"): "killed",
    ("started", "unknown"): "its owner died",
    ("started", "allowed"): "its owner died, policy retry",
    ("unknown", "allowed"): "run again, waits for its turn",
    ("unknown", "started"): "run again",
    ("unknown", "settled"): "result given",
    ("unknown", "denied"): "given up",
    ("unknown", "cancelled"): "run stopped",
}

LIFECYCLES = """\
# The two lifecycles

Drawn from the tables in [core/lifecycle.py](../src/holdfast/core/lifecycle.py) by `docs/draw.py`. A test compares the
arrows with the tables. A change that is not an arrow here cannot be written: the fenced update of a run and the update
of a ledger row name the states they may come from, and finding none of them is an error.

## A run

```mermaid
{runs}
```

| state | meaning |
|---|---|
| created | accepted and durable; nobody has worked on it. While it is queued, it does not hold its conversation |
| running | a lease holder works on it; it holds its conversation. A run that begins at once starts here |
| completed | at rest: answered, out of steps, or waiting for a human (stop reason `requires_approval`) |
| failed | at rest on an error; every call has its return |
| cancelled | somebody stopped it; every call has its return |

`completed` to `cancelled` is possible only while the stop reason is `requires_approval`.

## A tool call

```mermaid
{calls}
```

| state | meaning |
|---|---|
| awaiting | a human is asked; nothing was done |
| allowed | may run, has not been started |
| started | written down before the tool was started: its effect may or may not have happened |
| settled | it ran, or somebody answered it; the result is known and durable |
| denied | a human or a policy said no, or the approval was void; nothing was done |
| cancelled | stopped before or while it ran; the model is told so |
| unknown | whoever started it is gone; a human is asked, as for `awaiting` |

A call is written for the first time in whatever state the step leaves it: `awaiting` if a human is asked, `started` if
it runs at once, `allowed` if it waits for others, `denied` if a policy refused it, `settled` if a tool rule did.
"""

SETTINGS = """\
# Settings

Everything is set by environment variables, read once at start. An empty variable counts as unset. The options `--host`,
`--port` and `--database` win over the environment. A value that cannot be read stops the start and says why.

This table is made from `holdfast.settings.describe()` by `docs/draw.py`, and a test compares the two.

{table}

Not every setting does something yet: see [Not yet](differences.md#not-yet).
"""


def diagram(changes: Mapping[str, frozenset[str]], words: Mapping[tuple[str, str], str], first: tuple[str, ...]) -> str:
    """A mermaid state diagram with every arrow of the table and no other."""
    lines = ["stateDiagram-v2", *(f"    [*] --> {state}" for state in first)]
    for before, allowed in changes.items():
        for after in changes:  # in the table's order, so that the page does not change from run to run
            if after in allowed:
                label = words.get((before, after))
                lines.append(f"    {before} --> {after}{f' : {label}' if label else ''}")
    lines += [f"    {state} --> [*]" for state in changes if state not in ACTIVE | OPEN_CALLS]
    return "\n".join(lines)


def lifecycles() -> str:
    first_calls = tuple(state for state in CALL_CHANGES if state not in ("unknown", "cancelled"))
    return LIFECYCLES.format(
        runs=diagram(RUN_CHANGES, RUN_WORDS, ("created", "running")),  # type: ignore[arg-type]
        calls=diagram(CALL_CHANGES, CALL_WORDS, first_calls),  # type: ignore[arg-type]
    )


def settings() -> str:
    rows = ["| variable | also read as | meaning | default |", "|---|---|---|---|"]
    for name, aliases, meaning, default in describe():
        also = ", ".join(f"`{alias}`" for alias in aliases)
        shown = f"`{default}`" if default and " " not in default else default
        rows.append(f"| `{name}` | {also} | {meaning} | {shown} |")
    return SETTINGS.format(table="\n".join(rows))


PAGES = {"lifecycles.md": lifecycles, "settings.md": settings}


def main() -> None:
    for name, draw in PAGES.items():
        (HERE / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
