"""Tools, and packages of tools, that attack the server process which runs them.

Each attack is tried on four servers: as root and as an ordinary user, with namespaces (tier A) and with namespaces
denied as in a plain container (tier B). In tier B as an ordinary user, the tool is the same user as its server.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import denied
from denied import SOMEBODY

HOST = Path(__file__).with_name("hostile_host.py")
KINDS = {"root-A": ("", 0), "root-B": ("unshare", 0), "user-A": ("", SOMEBODY), "user-B": ("unshare", SOMEBODY)}
Server = Any


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Server:
    """Runs calls on a server of this kind, and returns its report about itself."""
    refused, uid = KINDS[request.param]
    if os.getuid() != 0 and uid == 0:
        pytest.skip("only root can be root")
    argv = denied.argv("import runpy; runpy.run_path(sys.argv[1], run_name='__main__')", refused, uid, str(HOST))

    def run(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
        request_text = json.dumps({"calls": calls, **more})
        done = subprocess.run(
            argv, cwd="/", env=denied.environment(), input=request_text, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        wanted = request.param[-1]
        if seen["tier"] != wanted:
            assert wanted == "A"
            assert "unshare" in str(seen["why_not"]), seen["why_not"]
            pytest.skip(f"this machine has no tier A for {request.param}: {seen['why_not']}")
        assert seen["after"] == seen["before"]
        assert seen["left_after_close"] == []
        return seen

    return run


@pytest.fixture
def packages() -> Iterator[Path]:
    """A folder of packages that every user can read, like an installed environment."""
    with tempfile.TemporaryDirectory(prefix="holdfast-packages-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can write to, including tools."""
    with tempfile.TemporaryDirectory(prefix="holdfast-shared-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def results(seen: dict[str, Any]) -> list[Any]:
    assert [status for status, _content in seen["outcomes"]] == ["success"] * len(seen["outcomes"]), seen["outcomes"]
    return [json.loads(content) for _status, content in seen["outcomes"]]


# ---- packages in the zygote -----------------------------------------------------------------------------

# Records in the shared folder whether a system call filter is active where it is imported, and sends forged messages
# to the server.
HOSTILE_MODULE = """
import ctypes, json, os, socket
confined = ctypes.CDLL(None).prctl(21, 0, 0, 0, 0)
descriptor = os.open(f"SHARED/{__name__}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
os.write(descriptor, str(confined).encode())
os.close(descriptor)
for descriptor in range(3, 64):
    try:
        line = socket.socket(fileno=os.dup(descriptor))
        for number in range(2, 400):
            news = {"ended": number, "status": 0, "limit": None, "cpu_seconds": 0.0, "left": VICTIM}
            line.send(json.dumps(news).encode(), socket.MSG_DONTWAIT)
    except OSError:
        pass
BaseModel = BaseSettings = Field = object
PyStringMap = None
"""
# What the zygote imports ahead of time, what that imports, and what the standard library tries to import.
HIJACKED = ("pydantic", "annotated_types", "typing_extensions", "typing_inspection", "_lzma", "_bz2", "_zstd", "nt")


def test_a_package_runs_only_where_the_tool_runs(server: Server, packages: Path, shared: Path) -> None:
    victim = shared / "victim"
    victim.mkdir(mode=0o777)
    hostile = HOSTILE_MODULE.replace("VICTIM", repr(str(victim))).replace("SHARED", str(shared))
    for name in HIJACKED:
        (packages / f"{name}.py").write_text(hostile)
    (packages / "org/python").mkdir(parents=True)
    (packages / "org/python/core.py").write_text(hostile)
    source = "import asyncio, pydantic, annotated_types\ndef tool():\n    return pydantic.confined"
    call = {"source": source, "packages": [str(packages)]}
    assert results(server(call, call, shared=str(shared))) == [2, 2]
    marks = {path.name: path.read_text() for path in shared.iterdir() if path.is_file()}
    assert set("".join(marks.values())) == {"2"}, marks
    assert victim.is_dir()


def test_packages_of_a_tool_go_before_the_libraries_of_the_server(server: Server, packages: Path) -> None:
    (packages / "annotated_types.py").write_text("Mine = True")
    source = "import annotated_types, asyncio\ndef tool():\n    return annotated_types.Mine"
    assert results(server({"source": source, "packages": [str(packages)]})) == [True]


# ---- a socket to the server -----------------------------------------------------------------------------

LINGER = """
import os, socket, struct, urllib.request
def tool(port: int) -> str:
    proxy = os.environ["HTTP_PROXY"].rpartition(":")
    said = []
    for descriptor in (1, 2, 3):
        slow = socket.create_connection(("127.0.0.1", int(proxy[2])))
        slow.sendall(b"CONNECT public.example:%d HTTP/1.1\\r\\n\\r\\n" % port)
        slow.recv(1000)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 8))
        slow.setblocking(False)
        try:
            while True:
                slow.send(b"x" * 65536)
        except BlockingIOError:
            pass
        try:
            line = socket.socket(fileno=os.dup(descriptor))
            socket.send_fds(line, [b"\\0"], [slow.fileno()])
            said.append(descriptor)
        except OSError:
            pass
        slow.close() if said else slow.detach()
    return repr(said)
"""


def test_a_tool_has_no_socket_over_which_it_could_stop_the_server(server: Server) -> None:
    seen = server({"source": LINGER, "arguments": {"port": "$PORT"}}, network="public")
    assert seen["outcomes"] == [["success", "[]"]]
    assert seen["stood_still"] < 4


# ---- the server's process and files ---------------------------------------------------------------------

CONTROL = """
import ctypes, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
def tool(pid: int, folder: str) -> list:
    key = folder + "/encryption.key"
    tries = {
        "open files": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3)),
        "processor time": lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)),
        "policy": lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        "priority of the group": lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 19),
        "priority of the user": lambda: os.setpriority(os.PRIO_USER, 0, 19),
        "processors": lambda: os.sched_setaffinity(pid, {0}),
        "input and output": lambda: call("syscall", 251, 1, pid, 3 << 13),
        "owner": lambda: os.chown(key, os.getuid(), os.getgid()),
        "attribute": lambda: os.setxattr(key, "user.mark", b"x"),
        "watch a folder": lambda: call("inotify_add_watch", libc.inotify_init1(0), folder.encode(), 0x100),
    }
    done = []
    for name, attempt in tries.items():
        try:
            attempt()
            done.append(name)
        except OSError:
            pass
    for change in (lambda: os.chmod(key, 0o777), lambda: os.chmod(folder, 0o777), lambda: os.utime(key, (1, 1))):
        try:
            change()
        except OSError:
            pass
    return done
"""


def test_a_tool_changes_nothing_of_the_servers_process_or_files(server: Server) -> None:
    """The fixture compares modes and times: where the user is the same, the calls succeed without effect."""
    seen = server({"source": CONTROL, "arguments": {"pid": "$PID", "folder": "$FOLDER"}})
    done = set(results(seen)[0])
    if seen["tier"] == "A":  # there these are the tool's own processes and its own folder of that name
        done -= {"priority of the user", "watch a folder"}
    assert done == set()


CUT_OFF = """
import os
def tool(folder: str) -> list:
    key = folder + "/encryption.key"
    done = []
    for name, attempt in {
        "truncate": lambda: os.truncate(key, 0),
        "open to read": lambda: os.open(key, os.O_RDONLY | os.O_TRUNC),
        "open nothing": lambda: os.open(key, os.O_PATH | os.O_TRUNC),
    }.items():
        try:
            attempt()
            done.append(name)
        except OSError:
            pass
    with open("own", "w") as file:
        file.write("long")
    with open("own", "w") as file:
        file.write("new")
    return [open("own").read()]
"""


def test_a_tool_cannot_empty_a_file_that_it_may_not_write(server: Server) -> None:
    """The fixture compares the file. Tools shorten their own files all the same."""
    assert results(server({"source": CUT_OFF, "arguments": {"folder": "$FOLDER"}})) == [["new"]]


# What System V knows by number is outside all folders. Removing needs no more than the number and the same user.
IN_SYSTEM_V = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def tool(memory: int, queue: int, semaphores: int) -> list:
    text = ctypes.create_string_buffer(64)
    done = {
        "memory is mapped": ctypes.c_long(libc.shmat(memory, None, 0)).value,
        "memory is removed": libc.shmctl(memory, 0, None),
        "queue is read": libc.msgrcv(queue, text, 8, 0, 0o4000),
        "queue is removed": libc.msgctl(queue, 0, None),
        "semaphore is set": libc.semctl(semaphores, 0, 16, 7),
        "semaphores are removed": libc.semctl(semaphores, 0, 0),
    }
    return [name for name, result in done.items() if result != -1]
"""


def test_a_tool_reaches_nothing_of_the_servers_user_in_system_v(server: Server) -> None:
    arguments = {"memory": "$SYSTEM_V_MEMORY", "queue": "$SYSTEM_V_QUEUE", "semaphores": "$SYSTEM_V_SEMAPHORES"}
    seen = server({"source": IN_SYSTEM_V, "arguments": arguments}, system_v=True)
    assert results(seen) == [[]]
    assert seen["system_v"] == ["memory", "queue", "semaphores"]


COPY = """
import os, shutil, stat
def tool() -> bool:
    open("a", "w").write("x")
    shutil.copy2("a", "b")
    shutil.copytree(".", os.environ["TMPDIR"] + "/copies")
    return open("b").read() == "x"
"""


def test_files_can_be_copied_all_the_same(server: Server) -> None:
    assert results(server({"source": COPY})) == [True]


ARGUMENTS = """
import gc, sys
def tool() -> dict:
    try:
        line = open("/proc/self/cmdline").read()
    except OSError:
        line = ""
    return {"argv": sys.argv, "original": sys.orig_argv, "line": line}
"""


def test_the_command_line_tells_a_tool_nothing_about_the_server(server: Server) -> None:
    seen = results(server({"source": ARGUMENTS}))[0]
    assert (seen["argv"], seen["original"]) == ([""], [""])
    assert "hostile" not in seen["line"]


MAIL = """
import socket
def tool(path: str) -> str:
    try:
        one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.sendto(b"READY=1", path)
        return "sent"
    except OSError:
        return "refused"
"""


def test_a_pair_of_sockets_reaches_no_socket_of_the_machine(server: Server) -> None:
    seen = server({"source": MAIL, "arguments": {"path": "$SOCKET"}})
    assert seen["outcomes"] == [["success", "refused"]]
    assert seen["received"] == ""


# ---- memory that belongs to no process ------------------------------------------------------------------

LIMIT = 160 * 1024 * 1024
# Each attempt is for memory that exists although no process maps it, so that no sum over processes would count it.
UNSEEN_MEMORY = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
def pinned():
    reading, writing = os.pipe()
    text = ctypes.create_string_buffer(8192)
    call(libc.vmsplice(writing, ctypes.byref((ctypes.c_size_t * 2)(ctypes.addressof(text), 8192)), ctypes.c_long(1), 0))
def spliced():
    reading, writing = os.pipe()
    open("file", "wb").write(b"x" * 8192)
    os.splice(os.open("file", os.O_RDONLY), writing, 4096)
def listed():
    os.mkdir("listed")
    entries = b"\\2\\0\\0\\0" + b"\\1\\0\\7\\0\\xff\\xff\\xff\\xff" * 3
    os.setxattr("listed", "system.posix_acl_default", entries)
def tool() -> list:
    tries = {
        "file in memory": lambda: os.memfd_create("x"),
        "shared memory": lambda: mmap.mmap(-1, 4096),
        "shared memory of a device": lambda: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096),
        "pages in a pipe": pinned,
        "pages of a file in a pipe": spliced,
        "list of rights": listed,
        "attribute": lambda: os.setxattr(".", "user.x", b"x"),
        "hide from measuring": lambda: call(libc.prctl(4, 0, 0, 0, 0)),
        "rules of landlock": lambda: call(libc.syscall(444, ctypes.byref(ctypes.c_uint64(1)), 8, 0)),
        "shared memory of System V": lambda: call(libc.shmget(0, 4096, 0o1600)),
        "queue of System V": lambda: call(libc.msgget(0, 0o1600)),
        "semaphores of System V": lambda: call(libc.semget(0, 1, 0o1600)),
    }
    done = []
    for name, attempt in tries.items():
        try:
            attempt()
            done.append(name)
        except OSError:
            pass
    mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE)
    return done
"""
PRIVATE_MEMORY = """
import os, time
def tool() -> None:
    for _ in range(6):
        if os.fork() == 0:
            held = bytearray(60_000_000)
            for place in range(0, len(held), 4096):
                held[place] = 1
            time.sleep(60)
    time.sleep(60)
"""
BUFFERS = """
import os, socket, time
def tool() -> None:
    for _ in range(8):
        if os.fork() == 0:
            held = []
            for _ in range(110):
                for end in (pair := socket.socketpair()):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
                    end.setblocking(False)
                    held.append(end)
                    try:
                        while True:
                            end.send(b"x" * 65536)
                    except BlockingIOError:
                        pass
            time.sleep(60)
    time.sleep(60)
"""
# The kernel does not let other processes inspect a program that may be executed but not read.
UNREADABLE = """
import os, shutil, sys, time
def tool() -> None:
    program = os.open("program", os.O_CREAT | os.O_WRONLY, 0o111)
    with open(os.path.realpath(sys.executable), "rb") as file:
        while chunk := file.read(1 << 20):
            os.write(program, chunk)
    os.close(program)
    if os.fork() == 0:
        os.execv("program", ["program", "-I", "-S", "-c", "import time; time.sleep(60)"])
    time.sleep(60)
"""


def test_a_tool_cannot_get_memory_that_no_process_owns(server: Server) -> None:
    assert results(server({"source": UNSEEN_MEMORY})) == [[]]


# Starts programs one after the other and side by side, as builds do. The kernel hides each for an instant.
MANY_PROGRAMS = """
import subprocess
def tool() -> int:
    ended = 0
    for _ in range(40):
        running = [subprocess.Popen(["/bin/true"]) for _ in range(8)]
        ended += sum(process.wait() == 0 for process in running)
    return ended
"""


def test_a_tool_that_starts_many_programs_is_not_taken_for_one_that_hides(server: Server) -> None:
    assert results(server({"source": MANY_PROGRAMS}, {"source": MANY_PROGRAMS})) == [320, 320]


@pytest.mark.parametrize("source", [PRIVATE_MEMORY, BUFFERS], ids=["of processes", "buffers of sockets"])
def test_memory_of_all_processes_counts_together(server: Server, source: str) -> None:
    seen = server({"source": source, "limits": {"memory_bytes": LIMIT, "wall_seconds": 50}})
    assert f"took more than {LIMIT} bytes of memory" in seen["outcomes"][0][1]


def test_a_process_that_cannot_be_inspected_is_killed(server: Server, request: pytest.FixtureRequest) -> None:
    """Only a root with all its capabilities, as in tier B, can inspect it anyway."""
    content = server({"source": UNREADABLE, "limits": {"wall_seconds": 4}})["outcomes"][0][1]
    assert "could not be measured" in content or ("root-B" in request.node.name and "longer than 4 seconds" in content)


# ---- files that walking through the scratch does not find -----------------------------------------------

NAMELESS = """
import os, time
def tool() -> None:
    held = []
    for number in range(6):
        held.append(open(str(number), "wb"))
        os.unlink(str(number))
        held[-1].write(b"x" * 30_000_000)
        held[-1].flush()
    time.sleep(30)
"""
MAPPED = """
import mmap, os, time
def tool() -> None:
    held = []
    for number in range(6):
        with open(str(number), "w+b") as file:
            file.write(b"x" * 30_000_000)
            file.flush()
            held.append(mmap.mmap(file.fileno(), 4096))
        os.unlink(str(number))
    time.sleep(30)
"""
UNLISTABLE = """
import os, time
def tool() -> None:
    os.mkdir("hidden", 0o300)
    for number in range(6):
        open(f"hidden/{number}", "wb").write(b"x" * 30_000_000)
    time.sleep(30)
"""


# Each file is sent to the other end of a pair of sockets and closed: then no process has it open, no folder lists it.
ON_THE_WAY = """
import os, socket, time
def tool() -> None:
    one, other = socket.socketpair()
    for number in range(80):
        with open("file", "wb") as file:
            file.write(b"x" * 30_000_000)
            file.flush()
            socket.send_fds(one, [b"x"], [file.fileno()])
        os.unlink("file")
    time.sleep(30)
"""


@pytest.mark.parametrize(
    "source", [NAMELESS, MAPPED, UNLISTABLE, ON_THE_WAY], ids=["nameless", "mapped", "unlistable", "on the way"]
)
def test_files_that_cannot_be_found_by_walking_count(server: Server, source: str) -> None:
    content = server({"source": source, "limits": {"wall_seconds": 20}})["outcomes"][0][1]
    assert any(words in content for words in ("No space left", "wrote more than", "could not be measured")), content


LEASE = """
import fcntl, os
def tool() -> list:
    open("own", "w").close()
    done = []
    for path in (os.__file__, "own"):
        for command, value in ((fcntl.F_SETLEASE, fcntl.F_WRLCK), (fcntl.F_SETLEASE, fcntl.F_RDLCK)):
            try:
                fcntl.fcntl(os.open(path, os.O_RDONLY), command, value)
                done.append(path)
            except OSError:
                pass
    try:
        fcntl.fcntl(os.open(".", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_CREATE)
        done.append("watch")
    except OSError:
        pass
    return done
"""


def test_no_lease_makes_the_server_wait_for_a_file(server: Server) -> None:
    assert results(server({"source": LEASE})) == [[]]


# ---- folders that cannot be walked ----------------------------------------------------------------------

NESTED = """
import os, time
def tool() -> str:
    open("large", "wb").write(b"x" * 1_000_000)
    for _ in range(1500):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    os.chmod("..", 0)
    time.sleep(0.5)
    return "nested"
"""
BESIDE = """
import time
def tool() -> str:
    time.sleep(1.5)
    return "fine"
"""


def test_folders_nested_deeply_hurt_no_other_call_and_do_not_stay(server: Server) -> None:
    seen = server({"source": NESTED}, {"source": BESIDE}, {"source": BESIDE}, at_once=True)
    nested, *beside = seen["outcomes"]
    assert beside == [["success", "fine"]] * 2
    if seen["tier"] == "B":
        assert "folders nested too deeply" in nested[1]
    assert seen["left"] == []
