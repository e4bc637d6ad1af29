"""The `letta` terminal client (npm @letta-ai/letta-code), headless, against a real server on both databases.

An old version, which speaks to agents, and the newest that runs on Node 20, which speaks to conversations. The tools
are the client's own: the server asks for them, the client runs them in its folder and sends back their results.

The model is directed by the prompt and reports what its tools returned. The old version adds a page of reminders to
the prompt, in which the demo model may find more to do; so only the beginning of its report is compared.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_fixture import Served

OLD, RECENT = "0.15.2", "0.25.9"
NEW = ("--new-agent", "-m")
ANSWER_SECONDS = 60.0

pytestmark = pytest.mark.timeout(600)  # the first test on a machine installs the client


class Terminal:
    """A working folder, an empty home folder, and the program."""

    def __init__(self, program: Path, served: Served, home: Path) -> None:
        self.folder = home / "work"
        self.folder.mkdir()
        self._program, self._served = program, served
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LETTA_BASE_URL": served.url,
            "DISABLE_AUTOUPDATER": "1",
            "LETTA_CODE_TELEM": "0",
        }

    def start(self, prompt: str, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self._program, "-p", prompt, *options],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, prompt: str, *options: str) -> dict[str, Any]:
        """The program's result, as soon as the agent has answered."""
        with self.start(prompt, "--output-format", "json", *options) as process:
            try:
                said, complained = process.communicate(timeout=ANSWER_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                said, complained = process.communicate()
        log = self._served.server.log_path.read_text()
        assert process.returncode == 0, f"{said}\n{complained}\nThe server's log:\n{log}"
        answer: dict[str, Any] = json.loads(said)
        assert answer["subtype"] == "success", said
        return answer


@pytest.fixture
def in_terminal(letta_code: Callable[[str], Path], served: Served, tmp_path: Path) -> Callable[[str], Terminal]:
    return lambda version: Terminal(letta_code(version), served, tmp_path)


@pytest.fixture(params=[OLD, RECENT])
def terminal(request: pytest.FixtureRequest, in_terminal: Callable[[str], Terminal]) -> Terminal:
    return in_terminal(request.param)


def bash(command: str) -> str:
    """A prompt that makes the demo model call the client's shell tool."""
    return f"/call Bash {json.dumps({'command': command, 'description': 'A test'})}"


def test_a_new_agent_has_its_tool_run_in_the_terminal(terminal: Terminal) -> None:
    answer = terminal.ask(bash("echo made-by-$((6 * 7)) | tee made.txt"), *NEW, "demo/rehearsal", "--yolo")
    assert answer["result"].startswith("Bash returned: made-by-42")
    assert (terminal.folder / "made.txt").read_text() == "made-by-42\n"


def test_two_tools_of_one_step_and_a_second_step_are_run(terminal: Terminal) -> None:
    for name in ("one", "two"):
        (terminal.folder / name).write_text(f"this is {name}")
    reads = [f"/call Read {json.dumps({'file_path': str(terminal.folder / name)})}" for name in ("one", "two")]
    directions = "\n".join([*reads, f"/then {bash('cat one two')}"])
    answer = terminal.ask(directions, *NEW, "anthropic/claude-sonnet-4-5", "--yolo")
    first, second, last = answer["result"].split(" returned: ")[1:4]
    assert "this is one" in first
    assert "this is two" in second
    assert last.startswith("this is onethis is two")


def test_a_conversation_is_taken_up_again(terminal: Terminal, served: Served) -> None:
    begun = terminal.ask("/say The word is plum.", *NEW, "demo/rehearsal", "--yolo")
    is_default = begun["conversation_id"] == "default"
    where = ("--agent", begun["agent_id"]) if is_default else ("--conversation", begun["conversation_id"])
    again = terminal.ask(bash("echo still-here"), *where, "--yolo")
    assert again["conversation_id"] == begun["conversation_id"]
    assert again["result"].startswith("Bash returned: still-here")
    answers = answers_in(served, begun)
    assert answers == ["The word is plum.", again["result"]]


def test_a_session_interrupted_in_its_tool_can_go_on(in_terminal: Callable[[str], Terminal], served: Served) -> None:
    terminal = in_terminal(RECENT)
    begun = terminal.ask("/say Begun.", *NEW, "demo/rehearsal", "--yolo")
    where = ("--conversation", begun["conversation_id"], "--yolo")
    with terminal.start(bash("sleep 600"), *where, "--output-format", "stream-json") as session:
        assert session.stdout is not None
        assert any('"auto_approval"' in line for line in session.stdout), "the tool was never run"
        session.send_signal(signal.SIGINT)
    assert terminal.ask("/say Back again.", *where)["result"] == "Back again."
    assert answers_in(served, begun) == ["Begun.", "Back again."]


def test_a_tool_without_a_person_to_approve_it_is_denied(in_terminal: Callable[[str], Terminal]) -> None:
    terminal = in_terminal(OLD)
    answer = terminal.ask(bash("touch made.txt"), *NEW, "demo/rehearsal")
    assert answer["result"].startswith("Bash was not successful: Error: request to call tool denied.")
    assert not (terminal.folder / "made.txt").exists()


def answers_in(served: Served, session: dict[str, Any]) -> list[str]:
    """What the agent said in a session, oldest first."""
    listed = served.client().agents.messages.list(
        session["agent_id"], conversation_id=session["conversation_id"], order="asc", limit=100
    )
    return [str(message.content) for message in listed.items if message.message_type == "assistant_message"]
