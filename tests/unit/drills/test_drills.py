"""The parts of the drills that need no stack."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

from drills import backlog, fault_proxy, run_faults
from drills.__main__ import DRILLS, main
from drills.deployment import SHORT, function_of
from drills.faults import FAULTS
from drills.jumped_clock import jumping
from drills.run_faults import DOCUMENT, ROOT, Outcome, document
from drills.session import Session
from drills.verdict import Verdict

CONDITIONS = {"cores": 2, "machine": "Linux", "loadOneMinute": 0.5, "python": "3.11"}


def outcome(fault=FAULTS[0], *, problems=(), findings=0, left=0):
    verdict = Verdict(tasks=20, succeeded=19, failed=1, retried=3, duplicates=3, problems=problems)
    return Outcome(fault, verdict, 12.34, 0, "what was done", findings, left)


def test_the_page_has_a_row_for_every_fault_and_says_on_what_it_was_measured():
    text = document([outcome(fault) for fault in FAULTS], CONDITIONS, "abc1234")

    assert all(f"| {fault.broken} | 20 | 20 | 3 | 3 | 0 | 12.3 s |" in text for fault in FAULTS)
    assert "commit `abc1234`" in text
    assert "2 cores (Linux), load 0.5" in text
    assert f"{SHORT.lease_seconds} s instead of 300" in text


def test_what_must_not_happen_is_a_problem_and_stands_on_the_page():
    bad = outcome(problems=("t1 is SUCCESS and was committed 2 times", "t2 is lost"), findings=1, left=2)

    assert len(bad.problems) == 4
    text = document([bad], CONDITIONS, "abc1234")
    assert "| 20 | 18 | 3 | 3 | 1 |" in text
    assert "**t2 is lost.**" in text


def test_the_page_in_the_repository_is_of_all_faults():
    text = DOCUMENT.read_text()

    assert [fault.broken for fault in FAULTS if f"| {fault.broken} |" not in text] == []


def test_drills_are_listed_and_told_of_in_the_runbook(capsys):
    assert main([]) == 0

    listed = capsys.readouterr().out
    runbook = (ROOT / "docs" / "operations.md").read_text()
    for drill in DRILLS:
        assert f"NAME={drill.name} " in listed
        assert f"make drill NAME={drill.name}" in runbook


def test_a_function_keeps_what_the_rhythm_does_not_name():
    before = {
        "TABLE_NAME": "tasks",
        "LEASE_SECONDS": "300",
        "EXECUTORS": json.dumps({"default": {"function": "f", "leaseSeconds": 300}}),
    }

    after = SHORT.environment(before)

    assert after["TABLE_NAME"] == "tasks"
    assert after["LEASE_SECONDS"] == "15"
    assert json.loads(after["EXECUTORS"]) == {"default": {"function": "f", "leaseSeconds": 15}}
    assert after.keys() == before.keys()


def test_a_process_that_runs_no_function_has_no_name():
    assert function_of(os.getpid()) == ""
    assert function_of(2**30) == ""


def test_the_clock_jumps_when_it_is_told_to_and_back(tmp_path):
    offset = tmp_path / "offset"
    now = jumping(lambda: 1000.0, offset)

    assert now() == 1000
    offset.write_text("-60")
    assert now() == 940
    offset.unlink()
    assert now() == 1000


def test_a_backlog_is_written_as_tasks_that_wait_in_every_shard():
    batches = list(backlog.batches("tasks", 60))
    items = [item for batch in batches for item in batch]

    assert [len(batch) for batch in batches] == [25, 25, 10]
    assert len({item["taskId"]["S"] for item in items}) == 60
    assert {item["status"]["S"] for item in items} == {"PENDING"}
    assert len({item["dispatchKey"]["S"] for item in items}) > 1


def test_rules_name_one_service_each():
    rules = [
        fault_proxy.throttled(),
        fault_proxy.updates_throttled("lease#"),
        fault_proxy.replies_dropped("PutItem", share=0.5),
        fault_proxy.latency_spikes(usual_ms=1, spike_ms=2, share=0.1),
        fault_proxy.next_update_held("t"),
    ]

    assert {rule["service"] for rule in rules} == {"dynamodb"}
    assert fault_proxy.next_invoke_held()["service"] == "lambda"


def test_a_command_is_shown_as_it_is_typed(monkeypatch):
    said = []
    ran = run_faults.subprocess.CompletedProcess([], 0, stdout="answer\n", stderr="")
    monkeypatch.setattr("drills.session.subprocess.run", lambda *_, **__: ran)

    session = Session(SimpleNamespace(record={"stateDir": "/nowhere"}), quick=True, write=said.append)

    assert session.thunder("queue", "set", "default", "--per-key", '{"tag": "tenant"}') == "answer\n"
    assert said == ['$ thunder queue set default --per-key \'{"tag": "tenant"}\'', "answer"]
