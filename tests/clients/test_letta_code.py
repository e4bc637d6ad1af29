"""The `letta` terminal client (npm @letta-ai/letta-code), headless, against a real server on both databases.

An old version, which speaks to agents, and the newest that runs on Node 20, which speaks to conversations. The tools
are the client's own: the server asks, the client runs them in its folder and sends back what came of it.

The model is directed by the prompt and reports what its tools returned. The old version adds a page of reminders to
the prompt, in which the demo model may find more to do; so only the beginning of its report is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_fixture import Served

OLD, RECENT = "0.15.2", "0.25.9"
ANSWER_SECONDS = 60.0

pytestmark = pytest.mark.timeout(600)  # the first test on a machine installs the client


class Terminal:
    """A folder to work in, a home that knows nothing yet, and the program."""

    def __init__(self, program: Path, served: Served, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self._program, self._served = program, served
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LETTA_BASE_URL": served.url,
            "DISABLE_AUTOUPDATER": "1",
            "LETTA_CODE_TELEM": "0",
        }

    def ask(self, prompt: str, *options: str) -> dict[str, Any]:
        done = subprocess.run(
            [self._program, "-p", prompt, "--output-format", "json", "--yolo", *options],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
        )
        log = self._served.server.log_path.read_text()
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\nThe server's log:\n{log}"
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["subtype"] == "success", done.stdout
        return answer


@pytest.fixture(params=[OLD, RECENT])
def terminal(
    request: pytest.FixtureRequest, letta_code: Callable[[str], Path], served: Served, tmp_path: Path
) -> Terminal:
    return Terminal(letta_code(request.param), served, tmp_path)


@pytest.mark.parametrize("model", ["demo/rehearsal", "anthropic/claude-sonnet-4-5"])
def test_a_new_agent_has_its_tools_run_in_the_terminal(terminal: Terminal, model: str) -> None:
    command = {"command": "echo made-by-$((6 * 7)) | tee made.txt", "description": "Make a file"}
    answer = terminal.ask(f"/call Bash {json.dumps(command)}", "--new-agent", "-m", model)
    assert answer["result"].startswith("Bash returned: made-by-42")
    assert (terminal.folder / "made.txt").read_text() == "made-by-42\n"


def test_two_tools_of_one_step_and_a_second_step_are_run(terminal: Terminal) -> None:
    for name in ("one", "two"):
        (terminal.folder / name).write_text(f"this is {name}")
    directions = [
        f"/call Read {json.dumps({'file_path': str(terminal.folder / 'one')})}",
        f"/call Read {json.dumps({'file_path': str(terminal.folder / 'two')})}",
        f"/then /call Bash {json.dumps({'command': 'cat one two', 'description': 'Show both'})}",
    ]
    answer = terminal.ask("\n".join(directions), "--new-agent", "-m", "demo/rehearsal")
    first, second, last = answer["result"].split(" returned: ")[1:4]
    assert "this is one" in first
    assert "this is two" in second
    assert last.startswith("this is onethis is two")


def test_an_agent_is_taken_up_again(terminal: Terminal, served: Served) -> None:
    begun = terminal.ask("/say The word is plum.", "--new-agent", "-m", "demo/rehearsal")
    command = {"command": "echo still-here", "description": "Answer"}
    again = terminal.ask(f"/call Bash {json.dumps(command)}", "--agent", begun["agent_id"])
    assert again["agent_id"] == begun["agent_id"]
    assert again["result"].startswith("Bash returned: still-here")
    listed = served.client().agents.messages.list(begun["agent_id"], limit=100).items
    answers = [message.content for message in listed if message.message_type == "assistant_message"]
    assert answers == ["The word is plum.", again["result"]]
