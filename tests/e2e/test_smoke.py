"""`make smoke-aws` without an account: its checks against the embedded AWS, and the synthesis of what it deploys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.local_stack import UpStack
from thunder.cli.options import Options
from thunder.cli.target import Target
from thunder.local.checkout import Checkout
from thunder.smoke.__main__ import look
from thunder.smoke.checks import CHECKS, Result, Verdict
from thunder.smoke.configuration import NAME_VARIABLE
from thunder.smoke.place import Place


def test_every_check_that_can_be_made_here_is_made_and_holds(own_stack: UpStack) -> None:
    record = own_stack.record
    target = Target(record["apiUrl"], Options(), record=record, table_name=record["tableName"])
    place = Place(target, "ThunderAgent-local", is_aws=False, patience_seconds=90)
    results: list[Result] = []
    look(place, results)
    assert place.clean_up() == []
    assert [(each.name, each.detail) for each in results if each.verdict not in {Verdict.OK, Verdict.SKIPPED}] == []
    skipped = [each.name for each in results if each.verdict is Verdict.SKIPPED]
    assert skipped == [check.name for check in CHECKS if check.only_aws]


def test_what_it_deploys_can_be_synthesised(tmp_path: Path) -> None:
    checkout = Checkout.of_this_installation()
    env = {**os.environ, "CDK_OUTDIR": str(tmp_path), "CDK_VALIDATION": "false", NAME_VARIABLE: "ThunderSmokeTest"}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    subprocess.run([sys.executable, "-m", "thunder.smoke.app"], cwd=checkout.root, env=env, check=True)
    data = json.loads((tmp_path / "ThunderSmokeTest-smoke-Data.template.json").read_text())
    service = json.loads((tmp_path / "ThunderSmokeTest-smoke.template.json").read_text())
    assert {each.get("DeletionPolicy", "Delete") for each in data["Resources"].values()} == {"Delete"}
    assert "OperatorRoleArn" in service["Outputs"]
