"""Tier A: put a process into its own namespaces and its own root filesystem, which contains only what it may see.

`enter` is called by a fresh interpreter that will become a zygote or a confined command. It returns in a new process,
pid 1 of a new pid namespace. That process sees a read-only tmpfs with read-only bind mounts of the interpreter, the
system's libraries and the confinement's packages, and has an empty network. The calling process stays behind as a
*stub*: it waits for the new process and exits with its exit code. Killing either kills everything inside.

    server ──exec──► stub ──fork──► pid 1, the zygote ──► cells, each pid 1 of its own pid namespace

The host's root user is never mapped. A server that is root first binds the paths that only root can reach (an
interpreter under /root), then switches to an unprivileged user, and only then creates the user namespace.

`enter` never returns half-confined: a failing step raises OSError in the new process, and the caller gives up there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable

from holdfast.tools.inside import linux
from holdfast.tools.inside.confinement import DEVICES, PROXY_PORT, Confinement, hidden_below, visible_paths

# The new root is built on this mount point, in our own mount namespace, because no visible path lies below it.
_NEW_ROOT = "/sys"
PACKAGES, LIBRARIES = "/packages", "/libraries"
# The scratch of each call is mounted after the landlock rules are made, so a rule must name the folder above it.
CALL = "/call"
SCRATCH = f"{CALL}/scratch"
# A tool can write only here. /tmp and /dev/shm are links to it, so one quota holds for all three.
WORK, TEMPORARY, SHARED_MEMORY = f"{SCRATCH}/work", f"{SCRATCH}/tmp", f"{SCRATCH}/shm"
HOST_NAME = "tool"
_INNER_NAMESPACES = linux.NEWNS | linux.NEWIPC | linux.NEWUTS | linux.NEWCGROUP


def enter(confinement: Confinement) -> None:
    uid, gid = confinement.uid or os.getuid(), confinement.uid or os.getgid()
    inner = _INNER_NAMESPACES | (0 if confinement.network == "full" else linux.NEWNET)
    own_proc = linux.open_own_proc()
    if confinement.uid:
        linux.unshare(linux.NEWNS)
        _build_root(confinement, uid, gid, _mount_empty_proc)
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        linux.set_dumpable()
        linux.unshare(linux.NEWUSER | linux.NEWPID | inner)
        linux.map_single_user(uid, gid, own_proc)
        socket.sethostname(HOST_NAME)
        _continue_in_child()
        _mount_proc("/proc")
    else:
        linux.unshare(linux.NEWUSER | linux.NEWPID | inner)
        linux.map_single_user(uid, gid, own_proc)
        socket.sethostname(HOST_NAME)
        _continue_in_child()
        _build_root(confinement, uid, gid, _mount_proc)


def _mount_proc(path: str) -> None:
    """Mount the /proc of the current pid namespace. In a user namespace the kernel allows this only where a complete
    /proc is already visible.
    """
    linux.mount("proc", path, "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)


def _mount_empty_proc(path: str) -> None:
    """Mount a complete /proc without processes, of a pid namespace that has ended, so that `_mount_proc` is allowed
    later.
    """
    helper = os.fork()
    if helper == 0:
        code = 1
        try:
            linux.unshare(linux.NEWPID)
            first = os.fork()
            if first == 0:
                _mount_proc(path)
                code = 0
            else:
                code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        finally:
            os._exit(code)
    if os.waitpid(helper, 0)[1] != 0:
        raise OSError("mount of /proc: not permitted")


def _continue_in_child() -> None:
    """Return only in a child, which is inside the new pid namespace; this process stays as its stub."""
    child = os.fork()
    if child == 0:
        linux.die_with_parent()
        return
    linux.die_with_parent()  # again, because a change of user has disarmed it
    linux.close_all_but()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


# ---- the root filesystem --------------------------------------------------------------------------------


def package_paths(confinement: Confinement) -> list[str]:
    """Where the tool's own packages are inside, in their order."""
    return [f"{PACKAGES}/{index}" for index in range(len(confinement.packages))]


def library_paths(confinement: Confinement) -> list[str]:
    """Where the server's libraries are inside, in their order."""
    return [f"{LIBRARIES}/{index}" for index in range(len(confinement.libraries))]


def _build_root(confinement: Confinement, uid: int, gid: int, mount_proc: Callable[[str], None]) -> None:
    linux.make_mounts_private()
    os.umask(0o022)
    linux.mount("tmpfs", _NEW_ROOT, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755,size=1m")
    for path in visible_paths(confinement):
        _bind_read_only(path, path, confinement)
    inside = (*package_paths(confinement), *library_paths(confinement))
    for source, path in zip((*confinement.packages, *confinement.libraries), inside, strict=True):
        _bind_read_only(source, path, confinement)
    for path in confinement.writable:
        linux.restrict_mount(_bind(path, path), read_only=False, recursive=True)
    for device in DEVICES:
        _bind(device, device)
    _write_etc(confinement, uid, gid)
    _create_directories()
    mount_proc(f"{_NEW_ROOT}/proc")
    linux.restrict_mount(_NEW_ROOT, read_only=True, recursive=False)
    linux.pivot_into(_NEW_ROOT)


def _bind_read_only(source: str, path: str, confinement: Confinement) -> None:
    """Bind-mount `source` recursively and read-only, with empty mounts over everything hidden below it."""
    if os.path.islink(source) and os.path.realpath(source).startswith("/usr/"):
        _symlink(os.readlink(source), path)
        return
    target = _bind(source, path)
    for hidden in hidden_below(confinement, source):
        inside = target + os.path.realpath(hidden)[len(os.path.realpath(source)) :]
        if os.path.isdir(inside):
            linux.mount("tmpfs", inside, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755,size=4k")
        elif os.path.exists(inside):
            linux.bind_mount("/dev/null", inside)
    linux.restrict_mount(target, read_only=True, recursive=True)


def _bind(source: str, path: str) -> str:
    target = _NEW_ROOT + path
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    linux.bind_mount(source, target)
    return target


def _symlink(text: str, path: str) -> None:
    os.makedirs(os.path.dirname(_NEW_ROOT + path), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(text, _NEW_ROOT + path)


def _write_etc(confinement: Confinement, uid: int, gid: int) -> None:
    files = {
        "passwd": f"tool:x:{uid}:{gid}:tool:{WORK}:/bin/sh\n",
        "group": f"tool:x:{gid}:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    os.makedirs(f"{_NEW_ROOT}/etc", exist_ok=True)
    for name, text in files.items():
        path = f"{_NEW_ROOT}/etc/{name}"
        if not os.path.lexists(path):
            with open(path, "w") as file:
                file.write(text)


def _create_directories() -> None:
    for path in ("/proc", "/dev", SCRATCH):
        os.makedirs(_NEW_ROOT + path, exist_ok=True)
    _symlink(TEMPORARY, "/tmp")
    _symlink(SHARED_MEMORY, "/dev/shm")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        _symlink(target, f"/dev/{name}")


def open_proxy_listener() -> socket.socket:
    """The only listening socket in the zygote's own network namespace; the server accepts on it from outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        linux.bring_loopback_up(probe.fileno())
    return socket.create_server(("127.0.0.1", PROXY_PORT), backlog=64)


# ---- for each call --------------------------------------------------------------------------------------


def mount_call_filesystems(confinement: Confinement) -> None:
    """Mount a /proc that shows only this call, and an empty scratch. The caller is pid 1 of its pid namespace and has
    its own mount namespace.
    """
    _mount_proc("/proc")
    size = f"size={confinement.disk_bytes},nr_inodes={confinement.disk_files},mode=0700"
    linux.mount("tmpfs", SCRATCH, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, size)
    for path in (WORK, TEMPORARY, SHARED_MEMORY):
        os.mkdir(path, 0o700)


def enter_own_user_namespace() -> None:
    """RLIMIT_NPROC is counted per user namespace, so the processes of one call cannot use up the limit of another."""
    uid, gid = os.getuid(), os.getgid()
    linux.set_dumpable()
    linux.unshare(linux.NEWUSER)
    linux.map_single_user(uid, gid, linux.open_own_proc())


class CallNamespaces:
    """Forks children that are each pid 1 of a new pid namespace with its own mount namespace."""

    def __init__(self) -> None:
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._own_mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def fork(self, in_child: Callable[[], None]) -> tuple[int, int]:
        """The child's pid, and a descriptor that keeps its mount namespace alive.

        While that descriptor is open, the child's exit does not include unmounting, which takes a good part of a
        millisecond, so waiting for the exit is shorter. This process returns to its own namespaces afterwards;
        otherwise a second fork would fail, because a process can prepare only one pid namespace at a time.
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
