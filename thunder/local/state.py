"""The state directory of one local stack: `.thunder/` in the checkout, or a private one for tests."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thunder.local.progress import Progress


@dataclass(frozen=True)
class StateDir:
    """Everything a local stack writes is below `path`, so that a copy of it is a copy of the deployed stack."""

    path: Path

    @property
    def aws(self) -> Path:
        return self.path / "aws"

    @property
    def was_killed(self) -> bool:
        """Whether the embedded AWS was ended without saving, or runs. The mark is its own (`emulator.py`)."""
        return (self.aws / "unsaved").exists()

    @property
    def was_saved(self) -> bool:
        """Whether the embedded AWS has ever saved what it holds."""
        return any(self.aws.glob("*.json")) or (self.aws / "saved").exists()

    @property
    def objects(self) -> Path:
        return self.path / "s3"

    @property
    def scratch(self) -> Path:
        return self.path / "tmp"

    @property
    def logs(self) -> Path:
        return self.path / "log"

    @property
    def cloud_assembly(self) -> Path:
        return self.path / "cdk.out"

    @property
    def record_file(self) -> Path:
        return self.path / "local.json"

    @property
    def processes_file(self) -> Path:
        return self.path / "processes.json"

    @property
    def port_file(self) -> Path:
        return self.path / "port"

    def create(self) -> None:
        """Makes the directories; only the owner may look inside, since the record holds credentials."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.aws, self.objects, self.scratch, self.logs):
            directory.mkdir(exist_ok=True)

    def set_aside(self) -> Path:
        """Moves what the embedded AWS has written out of its way, in place of what was set aside before.

        Objects are written at once and everything else when it ends: killed in its first run it leaves buckets that
        no stack knows, and bootstrapping, finding them, fails.
        """
        aside = self.path / "set-aside"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for directory in (self.aws, self.objects):
            directory.rename(aside / directory.name)
            directory.mkdir()
        return aside

    def clear_scratch(self) -> None:
        """Removes what the embedded AWS unpacked for its workers; only while none of them runs."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self.path.exists():
            self.scratch.mkdir(exist_ok=True)

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Holds the directory for one `up` or `down` at a time. The kernel drops the lock when its holder dies."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.say("waiting for another `thunder local` command in this checkout")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None when there is no such file."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    value: dict[str, Any] = json.loads(text)
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replaces the file in one step: a reader sees the old object or the new one, never half of it."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")
    os.chmod(partial, 0o600)
    partial.replace(path)
