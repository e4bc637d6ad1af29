"""Tool sources that are slow to parse on purpose: the server keeps responding to other requests meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx
import pytest

from holdfast.tools.schema.annotations import READ_SECONDS
from holdfast.tools.schema.tool_schema import BRACES, SOURCE_BYTES

LONGEST_SILENCE_SECONDS = 5.0  # the attacks held it up for 43 seconds and more; a busy machine takes its time
ANSWER_SECONDS = 3 * READ_SECONDS + 5


def documented(text: str) -> str:
    return f'def f(a: str):\n    """D.\n    {text}\n    """\n'


def filled(piece: str, end: str = "") -> str:
    return piece * ((SOURCE_BYTES - 200) // len(piece)) + end


MANY = ", ".join(f"a{number}: A" for number in range(2_000))
SOURCES = {
    "a type without end": documented(":param" + " " * 30_000),
    "a head without end": documented("Args" + " " * 100_000 + "!"),
    "an entry without end": documented("Args:\n    " + " " * 30_000 + "!"),
    "blank lines": documented("\n" * 100_000),
    "a long class that many name": f'class A(TypedDict):\n    """{"x " * 20_000}"""\n    b: int\n'
    f'def f({MANY}):\n    "D."\n',
    "a large enum that many name": "class A(Enum):\n"
    + "".join(f"    b{number} = {number}\n" for number in range(3_000))
    + f'def f({MANY}):\n    "D."\n',
    "a long text as a hint": f'A = "{"int |" * 15_000} int"\ndef f({MANY}):\n    "D."\n',
    "a long line of classes": "class C0(TypedDict): pass\n"
    + "".join(f"class C{n + 1}(C{n}): pass\n" for n in range(3_500))
    + 'def f(x: C3500):\n    "D."\n',
    "statements": filled("x;"),
    "f-strings": 'f"' + "{x}" * (BRACES + 1) + '"\n',
    "too large": filled("x\n") * 2,
    "minuses": filled("-", "1"),
    "sums": filled("1+", "1"),
    "attributes": filled(".a", "\n").removeprefix("."),
    "calls": "a" + filled("()"),
    "lambdas": filled("lambda:", "1"),
    "powers": filled("1**", "1"),
    "parentheses": "(" * 60_000,
    "lists in lists": "[" * 199 + "]" * 199,
    "else ifs": "if a:pass\n" + filled("elif a:pass\n"),
    "awaits": filled("await ", "x"),
}


def longest_silence(base_url: str, work: Callable[[], None]) -> float:
    """The longest time that another request took while the work was done."""
    done = threading.Event()
    silences: list[float] = []

    def ask() -> None:
        with httpx.Client(base_url=base_url, timeout=300) as client:
            while not silences or not done.is_set():
                began = time.monotonic()
                client.get("/v1/health/")
                silences.append(time.monotonic() - began)
                done.wait(0.01)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        work()
    finally:
        done.set()
        asking.join()
    return max(silences)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_hostile_source_does_not_hold_up_the_server(http: httpx.Client, source: str) -> None:
    def send_everywhere() -> None:
        for path, body in (
            ("/v1/tools/generate-schema", {"code": source}),
            ("/v1/tools/", {"source_code": source}),
            ("/v1/tools/", {"source_code": source, "args_json_schema": {"properties": {}}}),
        ):
            answer = http.post(path, json=body, timeout=ANSWER_SECONDS)
            assert answer.status_code in (200, 400), answer.text[:500]
            assert len(answer.text) < 4 * SOURCE_BYTES

    assert longest_silence(str(http.base_url), send_everywhere) < LONGEST_SILENCE_SECONDS


def test_a_change_reads_its_source_before_it_holds_up_other_writes(http: httpx.Client) -> None:
    made = http.post("/v1/tools/", json={"source_code": documented("x")}).json()
    slow = SOURCES["a large enum that many name"]
    writes: list[float] = []

    def change() -> None:
        refused = http.patch(f"/v1/tools/{made['id']}", json={"source_code": slow}, timeout=ANSWER_SECONDS)
        assert refused.status_code == 400
        assert "to read" in refused.text

    changing = threading.Thread(target=change)
    changing.start()
    while changing.is_alive():
        began = time.monotonic()
        assert http.post("/v1/blocks/", json={"label": "a", "value": "b"}).status_code == 200
        writes.append(time.monotonic() - began)
    changing.join()
    assert max(writes) < LONGEST_SILENCE_SECONDS
