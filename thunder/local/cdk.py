"""The CDK CLI, run against the embedded AWS: synthesis, bootstrap and the deployment users get."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from thunder.local.aws import ACCESS_KEY_ID, ACCOUNT, LOOPBACK, REGION, SECRET_ACCESS_KEY, client
from thunder.local.checkout import Checkout
from thunder.local.errors import CommandFailed
from thunder.local.progress import Progress
from thunder.local.state import StateDir

TOOLKIT_STACK = "CDKToolkit"
INPUTS = (
    "app.py",
    "cdk.json",
    "infra",
    "functions",
    "layers",
    "examples",
    "build/registry/local",
    "requirements.txt",
    "package-lock.json",
    "thunder/local/fixup.py",
)
NOT_INPUTS = {"__pycache__", ".mypy_cache", ".ruff_cache"}


@dataclass(frozen=True)
class Cdk:
    """The CDK CLI of a checkout, working on one local stack."""

    checkout: Checkout
    state: StateDir
    progress: Progress

    def synthesise(self) -> subprocess.Popen[bytes]:
        """Starts writing the cloud assembly of environment `local`; `finish` waits for it.

        Without the policy validation report: a test synthesises with it, and it doubles the time.
        """
        arguments = ["synth", "--quiet", "--output", str(self.state.cloud_assembly), "--context", "env=local"]
        return self._run(arguments, {"CDK_VALIDATION": "false", **_pip_settings(os.environ)}, log="synth.log")

    def bootstrap(self, endpoint: str) -> None:
        """Bootstraps the account, unless that is done, and removes what would refuse a deployment without TLS.

        Away from cdk.json: with an app at hand the CLI would synthesise it first, only to learn the account's name.
        """
        if not _stack_exists(endpoint, TOOLKIT_STACK):
            arguments = ["bootstrap", f"aws://{ACCOUNT}/{REGION}"]
            with self.progress.step("bootstrapping the embedded AWS for the CDK (once)"):
                running = self._run(arguments, _credentials(endpoint), log="bootstrap.log", cwd=self.state.scratch)
                self.finish(running, "bootstrap")
        _drop_bucket_policy(endpoint)

    def deploy(self, endpoint: str) -> None:
        """Deploys every stack of the cloud assembly."""
        arguments = ["deploy", "--all", "--app", str(self.state.cloud_assembly), "--require-approval", "never"]
        options = ["--progress", "events", "--asset-parallelism", "true"]
        self.finish(self._run(arguments + options, _credentials(endpoint), log="deploy.log"), "deploy")

    def finish(self, process: subprocess.Popen[bytes], name: str) -> None:
        """Waits for a command; raises CommandFailed with the end of its log when it fails. Interrupted, it ends it."""
        try:
            code = self.progress.wait(process, f"cdk {name}")
        except BaseException:
            process.kill()
            process.wait()
            raise
        if code:
            raise CommandFailed(f"cdk {name}", code, self.state.logs / f"{name}.log")

    def stack_names(self) -> list[str]:
        """The stacks of the cloud assembly, as CloudFormation names them."""
        manifest = json.loads((self.state.cloud_assembly / "manifest.json").read_text())
        stacks = [a for a in manifest["artifacts"].values() if a["type"] == "aws:cloudformation:stack"]
        return sorted(artifact["properties"].get("stackName", artifact["displayName"]) for artifact in stacks)

    def _run(
        self, arguments: Sequence[str], env: Mapping[str, str], *, log: str, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        cli = [str(self.checkout.node), str(self.checkout.cdk_cli)]
        with (self.state.logs / log).open("wb") as output:
            return subprocess.Popen(
                [*cli, *arguments, "--no-notices", "--no-version-reporting"],
                cwd=cwd or self.checkout.root,
                env={**self._environment(), **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _environment(self) -> dict[str, str]:
        """The operator's AWS configuration stays out: nothing here may reach a real account."""
        return {
            "PATH": self.checkout.tool_path,
            "HOME": str(self.state.scratch),
            "TMPDIR": str(self.state.scratch),
            "LANG": "C.UTF-8",
            "CI": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(self.checkout.venv / "jsii"),
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
        }


def _pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Where pip finds what handlers import: the operator's index, wheels and proxies. Only synthesis bundles."""
    proxies = ("http_proxy", "https_proxy", "no_proxy")
    return {name: value for name, value in environ.items() if name.startswith("PIP_") or name.lower() in proxies}


def fingerprint(checkout: Checkout) -> str:
    """SHA-256 over all files a deployment is made from: equal means that deploying again would change nothing."""
    digest = hashlib.sha256()
    for path in _input_files(checkout.root):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(checkout.root)} {content}\n".encode())
    return digest.hexdigest()


def _input_files(root: Path) -> Iterator[Path]:
    for name in INPUTS:
        top = root / name
        found = [top] if top.is_file() else sorted(top.rglob("*"))
        yield from (path for path in found if path.is_file() and not NOT_INPUTS & set(path.parts))


def _credentials(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "NO_PROXY": LOOPBACK,
    }


def _stack_exists(endpoint: str, name: str) -> bool:
    cloudformation = client("cloudformation", endpoint)
    try:
        stacks = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except cloudformation.exceptions.ClientError:
        return False
    return any(stack["StackStatus"].endswith("_COMPLETE") for stack in stacks)


def _drop_bucket_policy(endpoint: str) -> None:
    """The bootstrap bucket's policy refuses requests without TLS, which is right on AWS and fatal here."""
    cloudformation, s3 = client("cloudformation", endpoint), client("s3", endpoint)
    resource = cloudformation.describe_stack_resource(StackName=TOOLKIT_STACK, LogicalResourceId="StagingBucket")
    with suppress(s3.exceptions.ClientError):
        s3.delete_bucket_policy(Bucket=resource["StackResourceDetail"]["PhysicalResourceId"])
