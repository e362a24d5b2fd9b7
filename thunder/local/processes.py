"""Processes that outlive the command that started them, and how they are found and ended again.

Each child leads its own process group, and the group is what is ended: the embedded AWS runs Lambda workers of its
own. A process id alone proves nothing, since the kernel uses it again: the start time is recorded beside it.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thunder.local.errors import LocalError

POLL_SECONDS = 0.05
SAVE_GRACE_SECONDS = 120.0
"""The embedded AWS writes all it holds when it is told to end, tasks included: on a busy machine that takes a while."""
TERM_GRACE_SECONDS = 5.0
KILL_GRACE_SECONDS = 5.0
_PROC = Path("/proc")


@dataclass(frozen=True)
class Child:
    """One process we started: the leader of group `pid`, recognised again by `started`."""

    name: str
    pid: int
    started: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs: the same id with another start time is somebody else."""
        _reap(self.pid)
        return _start_time(self.pid) == self.started

    def as_record(self) -> dict[str, Any]:
        return {"name": self.name, "pid": self.pid, "started": self.started}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Child:
        return cls(name=record["name"], pid=record["pid"], started=record["started"])


def spawn(name: str, argv: list[str], *, env: Mapping[str, str], log: Path) -> Child:
    """Starts a process in a session of its own, its output appended to `log`, with exactly the environment given.

    posix_spawn rather than Popen: the child is meant to outlive us, and Popen warns about that when collected.
    """
    output = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        argv[0],
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), output, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    started = _start_time(pid)
    if started is None:
        raise LocalError(f"{name} ended at once; see {log}")
    return Child(name=name, pid=pid, started=started)


def end(child: Child, *, waiting: Callable[[], None] = lambda: None) -> None:
    """Ends the child's whole group: SIGTERM, and SIGKILL for what is left five seconds after its leader has ended.

    The leader itself has two minutes to save what it holds. Returns when nothing of the group is left. Safe when the
    child is long gone: a process that merely has its id now is not touched. `waiting` is called again and again while
    the leader saves. Raises LocalError when even SIGKILL leaves something behind.
    """
    if not child.alive and _start_time(child.pid) is not None:
        return  # The id belongs to another process now, so the kernel had let go of our group before.
    _signal_group(child.pid, signal.SIGTERM)

    def has_ended() -> bool:
        waiting()
        return not child.alive

    if _comes(has_ended, SAVE_GRACE_SECONDS) and _group_empties(child.pid, TERM_GRACE_SECONDS):
        return
    _signal_group(child.pid, signal.SIGKILL)
    if not _group_empties(child.pid, KILL_GRACE_SECONDS):
        raise LocalError(f"processes {sorted(group_members(child.pid))} of {child.name} survived SIGKILL")


def group_members(group: int) -> set[int]:
    """Ids of the living processes of a process group."""
    _reap(group)
    return {pid for pid, pgrp in _living_processes() if pgrp == group}


def open_addresses(pids: set[int]) -> set[tuple[str, int]] | None:
    """(address, port) of every TCP socket these processes listen on; None where the machine cannot tell."""
    if not (_PROC / "net" / "tcp").exists():
        return None
    sockets = {inode for pid in pids for inode in _socket_inodes(pid)}
    return {
        address
        for table, unpack in (("tcp", _ipv4), ("tcp6", _ipv6))
        for inode, address in _listening(table, unpack)
        if inode in sockets
    }


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _group_empties(group: int, within: float) -> bool:
    return _comes(lambda: not group_members(group), within)


def _comes(condition: Callable[[], bool], within: float) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _reap(pid: int) -> None:
    """Collects the child if it is ours and has ended: a zombie would look alive for as long as we live."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _start_time(pid: int) -> str | None:
    """A text that differs between two processes of one id; None when there is no such process."""
    if (_PROC / "self").exists():
        fields = _stat_fields(pid)
        return fields[19] if fields else None
    state, _, started = _ps("-p", str(pid), "-o", "stat=,lstart=").strip().partition(" ")
    return None if state.startswith("Z") else started or None


def _living_processes() -> list[tuple[int, int]]:
    """(pid, process group) of every process that is not a zombie."""
    if (_PROC / "self").exists():
        pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
        return [(pid, int(fields[2])) for pid in pids if (fields := _stat_fields(pid))]
    rows = [line.split() for line in _ps("-A", "-o", "pid=,pgid=,stat=").splitlines()]
    return [(int(row[0]), int(row[1])) for row in rows if not row[2].startswith("Z")]


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on (proc(5)); None for a process that is gone or a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout


def _socket_inodes(pid: int) -> set[str]:
    inodes = set()
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            with suppress(FileNotFoundError):
                target = os.readlink(descriptor)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return inodes


def _listening(table: str, unpack: Callable[[bytes], str]) -> list[tuple[str, tuple[str, int]]]:
    """(inode, address) of the listening sockets in /proc/net/<table>; state 0A is LISTEN."""
    path = _PROC / "net" / table
    rows = [line.split() for line in path.read_text().splitlines()[1:]] if path.exists() else []
    return [(row[9], _address(row[1], unpack)) for row in rows if row[3] == "0A"]


def _address(text: str, unpack: Callable[[bytes], str]) -> tuple[str, int]:
    host, _, port = text.partition(":")
    return unpack(bytes.fromhex(host)), int(port, 16)


def _ipv4(raw: bytes) -> str:
    return str(ipaddress.IPv4Address(raw[::-1]))


def _ipv6(raw: bytes) -> str:
    words = [raw[i : i + 4][::-1] for i in range(0, 16, 4)]
    return str(ipaddress.IPv6Address(b"".join(words)))
