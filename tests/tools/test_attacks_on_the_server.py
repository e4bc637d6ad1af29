"""Tools, and packages of tools, that attack the process, the sockets and the files of the server which runs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .attacked_server import Server, results

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


# What the kernel has once for the whole machine, and requests to file systems, which landlock does not restrict. The
# errors are those that a request gets without a filter: they show that the kernel did not see it.
OF_THE_MACHINE = """
import ctypes, errno, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def tool() -> list:
    own = os.open("own", os.O_CREAT | os.O_RDWR)
    request = (ctypes.c_uint64 * 4)(24, 0xFFFFFFFFFFFFFFFF, 0, 0)
    tries = {
        "asynchronous requests": lambda: call(206, 1, ctypes.byref(ctypes.c_ulong())),
        "mounts": lambda: call(458, request, (ctypes.c_uint64 * 8)(), 8, 0),
        "share a file's blocks": lambda: fcntl.ioctl(own, 0x40049409, -1),
        "flags of a file": lambda: fcntl.ioctl(own, 0x80086601, bytes(8)),
        "attributes of a file": lambda: fcntl.ioctl(own, 0x801C581F, bytes(28)),
        "blocks of a file": lambda: fcntl.ioctl(own, 0xC020660B, bytes(32)),
        "freeze": lambda: fcntl.ioctl(own, 0xC0045877, 0),
        "version of a file": lambda: fcntl.ioctl(own, 0x80087601, bytes(8)),
    }
    done = []
    for name, attempt in tries.items():
        try:
            attempt()
            done.append(name)
        except OSError as error:
            if error.errno not in (errno.ENOTTY, errno.EPERM) or (name == "freeze" and error.errno == errno.EPERM):
                done.append(f"{name}: {error.errno}")
    return done
"""


def test_a_tool_reaches_nothing_that_the_machine_has_once_and_no_request_to_a_file_system(server: Server) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers in this tool are those of x86-64")
    assert results(server({"source": OF_THE_MACHINE})) == [[]]


COPY = """
import os, shutil, stat, subprocess
def tool() -> bool:
    open("a", "w").write("x")
    shutil.copy2("a", "b")
    shutil.copytree(".", os.environ["TMPDIR"] + "/copies")
    subprocess.run(["cp", "--archive", "a", "c"], check=True)
    return open("b").read() == open("c").read() == "x"
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
