"""Starts an MCP server for tests, made with the official package, in its own process.

    with Peer("streamable_http", folder) as peer:
        client.mcp_servers.create(server_name="shop", config={"server_url": peer.url, ...})
        peer.heard("begin")      # waits until a tool has recorded that it began
        peer.kill()              # as kill -9 does
        peer.start()             # again, on the same port

Its tools record what they do in a file, so a test can see every effect. `legacy_http` is a server without the
protocol's newer handshake, like most in use; `stdio` is only a command for others to start.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.testing.waiting import until

SERVER = Path(__file__).with_name("mcp_peer_server.py")


class Peer:
    def __init__(self, kind: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.notes_path = folder / "notes"
        self.notes_path.touch()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]
        self.command = [sys.executable, str(SERVER), kind, str(self.port), str(self.notes_path)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{'sse' if self.kind == 'sse' else 'mcp'}"

    @property
    def config(self) -> Any:
        """The configuration with which a client creates it; the SDK has a type for each kind."""
        if self.kind == "stdio":
            return {"mcp_server_type": "stdio", "command": self.command[0], "args": self.command[1:]}
        return {"mcp_server_type": "sse" if self.kind == "sse" else "streamable_http", "server_url": self.url}

    def start(self) -> None:
        self._process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process = self._process
        try:
            until(lambda: self._listens() or process.poll() is not None, "the start of the MCP server")
            assert process.poll() is None, "the MCP server did not start"
        except BaseException:
            self.kill()
            raise

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Suspend it: it accepts connections and does not respond."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def notes(self, what: str | None = None) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.notes_path.read_text().splitlines()]
        return [note for note in found if what is None or note["what"] == what]

    def heard(self, what: str, times: int = 1) -> list[dict[str, Any]]:
        """Wait until this was recorded `times` times. Another process writes the file, so this has to poll."""
        until(lambda: len(self.notes(what)) >= times, f"{times} notes of {what}")
        return self.notes(what)

    def __enter__(self) -> Self:
        if self.kind != "stdio":
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
