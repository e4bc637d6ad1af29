"""Tier A's world: a process tree of its own on a root of its own, in which only what the cage shows exists.

`enter` is called by a fresh interpreter that is about to become a zygote (or a jailed command). It returns in a new
process, the first of a new pid namespace, which sees a read-only tmpfs with read-only binds of the interpreter, the
system's libraries and the cage's packages, and has an empty network. The process that called it stays behind as a
*stub*: it waits for the new one and ends with its exit code. Killing either kills everything inside.

    server ──exec──► stub ──fork──► pid 1 of the jail ──► cells, each pid 1 of its own namespace inside

Root of the host is never mapped. A server that is root shows what only root can reach (an interpreter under /root),
then becomes an unprivileged user, and only then makes the user namespace.

It never returns half-confined: what fails raises OSError in the new process, and the caller gives up there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable

from holdfast.tools import linux
from holdfast.tools.cage import DEVICES, PROXY_PORT, Cage, hidden_below, shown_to

# The new root is built on this mount point, inside our own mount namespace: nothing that a cage shows lies below it.
_BUILDING_SITE = "/sys"
PACKAGES = "/packages"
# A rule of landlock for what is mounted later must be on the folder above, so the scratch has one of its own.
CALL = "/call"
SCRATCH = f"{CALL}/scratch"
# The one place where a tool can write. /tmp and /dev/shm lead here, so one quota holds for all three.
WORK, TEMPORARY, SHARED_MEMORY = f"{SCRATCH}/work", f"{SCRATCH}/tmp", f"{SCRATCH}/shm"
_INNER = linux.NEWNS | linux.NEWIPC | linux.NEWUTS | linux.NEWCGROUP


def enter(cage: Cage) -> None:
    uid, gid = cage.uid or os.getuid(), cage.uid or os.getgid()
    inner = _INNER | (0 if cage.network == "full" else linux.NEWNET)
    own_proc = linux.open_own_proc()
    if cage.uid:
        linux.unshare(linux.NEWNS)
        _build(cage, uid, gid, _mount_proc_of_nobody)
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        linux.allow_own_maps()
        linux.unshare(linux.NEWUSER | linux.NEWPID | inner)
        linux.map_only(uid, gid, own_proc)
        _go_on_in_a_child()
        _mount_proc("/proc")
    else:
        linux.unshare(linux.NEWUSER | linux.NEWPID | inner)
        linux.map_only(uid, gid, own_proc)
        _go_on_in_a_child()
        _build(cage, uid, gid, _mount_proc)


def _mount_proc(place: str) -> None:
    """The processes of the mounting process's own pid namespace. In a user namespace the kernel allows it only where
    a whole /proc can be seen already."""
    linux.mount("proc", place, "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)


def _mount_proc_of_nobody(place: str) -> None:
    """A whole /proc without a process in it, of a pid namespace that is gone: it is there to be mounted over."""
    helper = os.fork()
    if helper == 0:
        code = 1
        try:
            linux.unshare(linux.NEWPID)
            first = os.fork()
            if first == 0:
                _mount_proc(place)
                code = 0
            else:
                code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        finally:
            os._exit(code)
    if os.waitpid(helper, 0)[1] != 0:
        raise OSError("mount of /proc: not permitted")


def _go_on_in_a_child() -> None:
    """Only a child is inside the new pid namespace; this process stays as its stub."""
    child = os.fork()
    if child == 0:
        linux.die_with_parent()
        return
    linux.die_with_parent()  # once more: a change of user has disarmed it
    linux.close_all_but()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


# ---- the root -------------------------------------------------------------------------------------------


def package_places(cage: Cage) -> list[str]:
    """Where the cage's package folders are found inside, in their order."""
    return [f"{PACKAGES}/{place}" for place in range(len(cage.packages))]


def _build(cage: Cage, uid: int, gid: int, mount_proc: Callable[[str], None]) -> None:
    linux.make_mounts_private()
    os.umask(0o022)
    linux.mount("tmpfs", _BUILDING_SITE, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755,size=1m")
    for place in shown_to(cage):
        _show(place, place, cage)
    for source, place in zip(cage.packages, package_places(cage), strict=True):
        _show(source, place, cage)
    for place in cage.writable:
        linux.restrict_mount(_attach(place, place), read_only=False, recursive=True)
    for device in DEVICES:
        _attach(device, device)
    _write_etc(cage, uid, gid)
    _furnish()
    mount_proc(f"{_BUILDING_SITE}/proc")
    linux.restrict_mount(_BUILDING_SITE, read_only=True, recursive=False)
    linux.pivot_into(_BUILDING_SITE)


def _show(source: str, place: str, cage: Cage) -> None:
    """Read-only, with everything below it, and with holes where something below is hidden."""
    if os.path.islink(source) and os.path.realpath(source).startswith("/usr/"):
        _link(os.readlink(source), place)
        return
    target = _attach(source, place)
    for hidden in hidden_below(cage, source):
        inside = target + os.path.realpath(hidden)[len(os.path.realpath(source)) :]
        if os.path.isdir(inside):
            linux.mount("tmpfs", inside, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755,size=4k")
        elif os.path.exists(inside):
            linux.bind("/dev/null", inside)
    linux.restrict_mount(target, read_only=True, recursive=True)


def _attach(source: str, place: str) -> str:
    target = _BUILDING_SITE + place
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    linux.bind(source, target)
    return target


def _link(text: str, place: str) -> None:
    os.makedirs(os.path.dirname(_BUILDING_SITE + place), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(text, _BUILDING_SITE + place)


def _write_etc(cage: Cage, uid: int, gid: int) -> None:
    files = {
        "passwd": f"tool:x:{uid}:{gid}:tool:{WORK}:/bin/sh\n",
        "group": f"tool:x:{gid}:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    os.makedirs(f"{_BUILDING_SITE}/etc", exist_ok=True)
    for name, text in files.items():
        path = f"{_BUILDING_SITE}/etc/{name}"
        if not os.path.lexists(path):
            with open(path, "w") as file:
                file.write(text)


def _furnish() -> None:
    for place in ("/proc", "/dev", SCRATCH):
        os.makedirs(_BUILDING_SITE + place, exist_ok=True)
    _link(TEMPORARY, "/tmp")
    _link(SHARED_MEMORY, "/dev/shm")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        _link(target, f"/dev/{name}")


def listener() -> socket.socket:
    """In the jail's own network there is nothing but this; the server accepts on it from outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        linux.bring_loopback_up(probe.fileno())
    return socket.create_server(("127.0.0.1", PROXY_PORT), backlog=64)


# ---- one call's own part --------------------------------------------------------------------------------


def furnish_call(cage: Cage) -> None:
    """As the first process of a pid namespace, with mounts of its own: a /proc that shows only itself, and an empty
    scratch."""
    _mount_proc("/proc")
    size = f"size={cage.disk_bytes},nr_inodes={cage.disk_files},mode=0700"
    linux.mount("tmpfs", SCRATCH, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, size)
    for place in (WORK, TEMPORARY, SHARED_MEMORY):
        os.mkdir(place, 0o700)


def own_user_namespace() -> None:
    """The limit on processes counts in here by itself; one call's cannot starve another's."""
    uid, gid = os.getuid(), os.getgid()
    linux.allow_own_maps()
    linux.unshare(linux.NEWUSER)
    linux.map_only(uid, gid, linux.open_own_proc())


class CallNamespaces:
    """Forks children that are each the first process of a new pid namespace, with mounts of their own."""

    def __init__(self) -> None:
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._own_mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def fork(self, in_child: Callable[[], None]) -> tuple[int, int]:
        """The child's pid, and a descriptor that holds its mounts.

        As long as that is open, the child's end does not include taking them down, which takes a good part of a
        millisecond: whoever waits for the end need not wait for that. This process returns to its own namespaces;
        without that a second fork would fail, as one process may prepare one pid namespace at a time.
        """
        linux.unshare(linux.NEWPID | linux.NEWNS)
        try:
            mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                child = os.fork()
            except OSError:
                os.close(mounts)
                raise
            if child == 0:
                in_child()
                os._exit(1)
            return child, mounts
        finally:
            linux.setns(self._own_pids, linux.NEWPID)
            linux.setns(self._own_mounts, linux.NEWNS)
