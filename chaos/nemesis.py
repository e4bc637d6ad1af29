"""Injects faults at random times: kills and suspends processes, cuts database connections, fills the disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp

from chaos.fleet import LEASE_SECONDS, Fleet, Member

DISK_BYTES = 4 << 30  # more than any storm writes


@dataclass(slots=True)
class Nemesis:
    fleet: Fleet
    session: aiohttp.ClientSession
    random: Random
    disk: Path | None = None  # a small file system of its own, which can be filled
    done: Counter[str] = field(default_factory=Counter)

    async def inject_faults(self, kills: int, pause_seconds: float) -> None:
        """Inject faults until `kills` processes were killed. Each process has its own schedule, so several can
        be down at once."""
        await asyncio.gather(*(self._pursue(member, kills, pause_seconds) for member in self.fleet.members))

    async def _pursue(self, member: Member, kills: int, pause_seconds: float) -> None:
        while self.done["killed"] < kills:
            await asyncio.sleep(self.random.random() * pause_seconds)
            if not member.alive:
                self.done["died by itself"] += 1
                member.launch()
                await member.answering(self.session)
            chance = self.random.random()
            if chance < 0.8:
                await self._kill(member)
            elif chance < 0.9:
                await self._stand_still(member)
            else:
                await self._break_storage()

    async def _kill(self, member: Member) -> None:
        await member.kill()
        self.done["killed"] += 1
        await asyncio.sleep(self.random.random() * 0.3)
        member.launch()
        await member.answering(self.session)

    async def _stand_still(self, member: Member) -> None:
        """Suspend a process for longer than a lease, so that others take its runs; then continue it."""
        member.signal(signal.SIGSTOP)
        self.done["stopped past the lease"] += 1
        await asyncio.sleep(LEASE_SECONDS * (1.2 + self.random.random()))
        member.signal(signal.SIGCONT)

    async def _break_storage(self) -> None:
        if self.fleet.database == "postgres":
            self.done["connections cut"] += await asyncio.to_thread(self.fleet.cut_connections)
        elif self.disk is not None:
            await self._fill_disk(self.disk)

    async def _fill_disk(self, disk: Path) -> None:
        """Shrink the file system to what is on it; give its space back a moment later."""
        found = os.statvfs(disk)
        if not _resize(disk, (found.f_blocks - found.f_bfree) * found.f_frsize):
            return  # it was written to at that moment
        self.done["disk was full"] += 1
        await asyncio.sleep(0.2 + self.random.random())
        if not _resize(disk, DISK_BYTES):
            raise RuntimeError(f"The file system at {disk} did not get its space back.")


def small_disk(folder: Path) -> Path | None:
    """A new tmpfs, whose size can be changed, if this process may mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        return None
    return folder


def _resize(disk: Path, size: int) -> bool:
    remount = ["mount", "-o", f"remount,size={size}", str(disk)]
    return subprocess.run(remount, capture_output=True, check=False).returncode == 0


def give_back(disk: Path | None) -> None:
    if disk is not None:
        subprocess.run(["umount", "-l", str(disk)], capture_output=True, check=False)
