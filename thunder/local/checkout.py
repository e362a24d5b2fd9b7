"""Where the tools of a checkout lie. Everything is inside it: nothing is looked up on the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from thunder.local.errors import LocalError

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Checkout:
    """A working copy with its `.venv`."""

    root: Path

    @classmethod
    def of_this_installation(cls) -> Checkout:
        """The checkout this module was imported from; raises LocalError when it was installed without one."""
        root = Path(__file__).resolve().parents[2]
        if not (root / "cdk.json").is_file():
            raise LocalError(f"{root} is not a checkout of ThunderAgent: the local stack is deployed from its sources")
        return cls(root)

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def embedded_python(self) -> Path:
        """The interpreter of the embedded AWS, and so of its Lambda functions.

        Not `.venv`'s own: functions run on the emulator's interpreter and see its site-packages, and a layer that
        forgot a dependency would work here and fail on AWS. This environment holds the emulator and boto3 only.
        """
        return self.venv / "embedded" / "bin" / "python"

    @property
    def node(self) -> Path:
        return self.venv / "bin" / "node"

    @property
    def cdk_cli(self) -> Path:
        return self.root / "node_modules" / "aws-cdk" / "bin" / "cdk"

    @property
    def tool_path(self) -> str:
        """PATH for tools: `.venv` first, so that the CDK app and jsii find its Python and Node."""
        return os.pathsep.join([str(self.venv / "bin"), SYSTEM_PATH])

    def require_tools(self) -> None:
        """Raises LocalError naming `make setup` when a tool is missing."""
        missing = [path for path in (self.embedded_python, self.node, self.cdk_cli) if not path.exists()]
        if missing:
            raise LocalError(f"{missing[0].relative_to(self.root)} is missing: run `make setup` first")
