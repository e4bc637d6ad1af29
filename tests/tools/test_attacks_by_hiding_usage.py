"""Tools that use memory or disk where measuring does not find it, or keep the measuring from coming to an end."""

from __future__ import annotations

import pytest

from .attacked_server import Server, results

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
