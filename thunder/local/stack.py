"""The local stack as a whole: `up`, `down` and what is up now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thunder.local import aws, bridge
from thunder.local.aws import ACCESS_KEY_ID, LOOPBACK, REGION, SECRET_ACCESS_KEY, EmbeddedAws, client, is_ready
from thunder.local.cdk import Cdk, fingerprint
from thunder.local.checkout import Checkout
from thunder.local.errors import LocalError
from thunder.local.fixup import fix_up
from thunder.local.processes import Child, end
from thunder.local.progress import Progress
from thunder.local.state import StateDir, read_json, write_json

DEPLOYED_PARAMETER = "/thunder/local/deployed"
_EXECUTE_API = re.compile(r"https?://(?P<api>[a-z0-9]+)\.execute-api\.")


@dataclass(frozen=True)
class LocalStack:
    """One stack on this machine: a checkout's sources, deployed into one state directory."""

    checkout: Checkout
    state: StateDir
    progress: Progress = field(default_factory=Progress)
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """Where the functions find single services, by the names botocore uses (`DYNAMODB`): a proxy that breaks things."""
    emulator: Path | None = None
    """The script that the embedded AWS is run from, if not our own: one with a meter, for benches."""

    def up(self) -> dict[str, Any]:
        """Starts and deploys what is not up to date yet, and returns the record of what is up.

        Repeatable: with everything up and unchanged it does nothing. Raises LocalError when a step fails; what this
        call has started is ended then, what was up before stays.
        """
        self.checkout.require_tools()
        with self.state.locked(self.progress):
            self.state.create()
            if running := self._running():
                return self._up_to_date(running)
            self._mend()
            try:
                with self.progress.step("starting the embedded AWS"):
                    running = aws.start(
                        self.checkout,
                        self.state,
                        self._remember,
                        endpoints=self.endpoints,
                        emulator=self.emulator,
                    )
                return self._up_to_date(running)
            except BaseException:
                self._end_all()
                raise

    def down(self) -> bool:
        """Ends every process of this stack; its data stay for the next `up`. False when nothing was up."""
        with self.state.locked(self.progress):
            return self._end_all()

    def status(self) -> dict[str, Any] | None:
        """The record of what is up, or None: nothing was started, it was ended, or it died.

        `bridge` says whether metrics and alarms are seen to; the stack works without. `up` starts it again.
        """
        record = read_json(self.state.record_file)
        alive = {child.name for child in self._children() if child.alive}
        if record is None or aws.PROCESS_NAME not in alive:
            return None
        return {**record, "bridge": bridge.PROCESS_NAME in alive}

    def _running(self) -> EmbeddedAws | None:
        """The embedded AWS of an earlier `up`, if it is alive and answers; ends the remains of one that does not."""
        recorded = read_json(self.state.processes_file)
        for child in self._children():
            if recorded and child.name == aws.PROCESS_NAME and child.alive and is_ready(recorded["port"]):
                return EmbeddedAws(child=child, port=recorded["port"])
        self._end_all()
        return None

    def _mend(self) -> None:
        """Says what a run that was killed has cost, and sets aside what nothing can be built on."""
        if not self.state.was_killed:
            return
        if self.state.was_saved:
            self.progress.say("the last run was killed: what was stored in it is lost, what it began with is there")
        else:
            aside = self.state.set_aside()
            self.progress.say(f"the first run was killed before anything was saved; its remains are in {aside}")

    def _up_to_date(self, running: EmbeddedAws) -> dict[str, Any]:
        if self._deployed(running) != fingerprint(self.checkout):
            self._deploy(running)
        self._watch(running)
        record = self._record(running)
        write_json(self.state.record_file, record)
        return {**record, "bridge": True}

    def _watch(self, running: EmbeddedAws) -> None:
        """Starts the bridge unless it is there, and waits until every alarm has a state."""
        if not any(child.name == bridge.PROCESS_NAME and child.alive for child in self._children()):
            self._remember(running, bridge.start(self.checkout, self.state, running.endpoint))
        if not bridge.wait_for_alarms(running.endpoint):
            self.progress.say(f"some alarms have no state yet; see {bridge.log_of(self.state)}")

    def _end_all(self) -> bool:
        """Ends the processes, the newest first, and forgets them. False when there were none."""
        children = self._children()
        for child in reversed(children):
            self._end(child)
        self.state.record_file.unlink(missing_ok=True)
        self.state.processes_file.unlink(missing_ok=True)
        self.state.clear_scratch()
        return bool(children)

    def _end(self, child: Child) -> None:
        """Ends a process. The embedded AWS then writes down all it holds: on a busy machine it takes its time."""
        if child.name != aws.PROCESS_NAME or not child.alive:
            end(child)
            return
        with self.progress.step("ending the embedded AWS: it saves what it holds"):
            end(child, waiting=self.progress.sign_of_life("saving"))

    def _remember(self, running: EmbeddedAws, *others: Child) -> None:
        children = [child.as_record() for child in (running.child, *others)]
        write_json(self.state.processes_file, {"port": running.port, "children": children})

    def _children(self) -> list[Child]:
        """The processes of this stack, in the order they were started."""
        recorded = read_json(self.state.processes_file) or {"children": []}
        return [Child.of_record(record) for record in recorded["children"]]

    def _deploy(self, running: EmbeddedAws) -> None:
        """Synthesises while it bootstraps: neither waits for the other, and a first run has two cores to use."""
        deployed = fingerprint(self.checkout)
        cdk = Cdk(self.checkout, self.state, self.progress)
        synthesis = cdk.synthesise()
        try:
            cdk.bootstrap(running.endpoint)
            with self.progress.step("synthesising the stacks"):
                cdk.finish(synthesis, "synth")
        finally:
            synthesis.kill()
            synthesis.wait()
        with self.progress.step(f"deploying {', '.join(cdk.stack_names())}"):
            cdk.deploy(running.endpoint)
            fix_up(running.endpoint, cdk.stack_names())
        self._mark_deployed(running, deployed)

    def _deployed(self, running: EmbeddedAws) -> str | None:
        """The fingerprint that was deployed last.

        Kept inside the embedded AWS, beside what it describes: if a crash loses the one it loses the other.
        """
        ssm = client("ssm", running.endpoint)
        try:
            value: str = ssm.get_parameter(Name=DEPLOYED_PARAMETER)["Parameter"]["Value"]
        except ssm.exceptions.ParameterNotFound:
            return None
        return value

    def _mark_deployed(self, running: EmbeddedAws, deployed: str) -> None:
        ssm = client("ssm", running.endpoint)
        ssm.put_parameter(Name=DEPLOYED_PARAMETER, Value=deployed, Type="String", Overwrite=True)

    def _record(self, running: EmbeddedAws) -> dict[str, Any]:
        stacks = Cdk(self.checkout, self.state, self.progress).stack_names()
        outputs = _outputs(running.endpoint, stacks)
        return {
            "endpoint": running.endpoint,
            "apiUrl": local_api_url(running.port, outputs),
            "tableName": outputs["TableName"],
            "bucketName": outputs["ArchiveBucketName"],
            "alarmTopicArn": outputs.get("AlarmTopicArn"),
            "dashboardUrl": outputs.get("DashboardUrl"),
            "region": REGION,
            "accessKeyId": ACCESS_KEY_ID,
            "secretAccessKey": SECRET_ACCESS_KEY,
            "stateDir": str(self.state.path),
            "stacks": stacks,
            "pid": running.child.pid,
        }


def local_api_url(port: int, outputs: Mapping[str, str]) -> str:
    """Where this machine reaches the API: the CDK's own URL is a name that resolves to AWS, or nowhere."""
    match = _EXECUTE_API.match(outputs["ApiUrl"])
    if match is None:
        raise LocalError(f"the output ApiUrl is not an API Gateway URL: {outputs['ApiUrl']}")
    return f"http://{LOOPBACK}:{port}/_aws/execute-api/{match['api']}/"


def _outputs(endpoint: str, stacks: list[str]) -> dict[str, str]:
    cloudformation = client("cloudformation", endpoint)
    described = [cloudformation.describe_stacks(StackName=stack)["Stacks"][0] for stack in stacks]
    return {output["OutputKey"]: output["OutputValue"] for stack in described for output in stack.get("Outputs", [])}
