"""A destruction says what is lost and asks; whatever keeps its data is refused, by configuration and as deployed."""

from __future__ import annotations

import json

import pytest

from thunder import destruction
from thunder.deployment import Target
from thunder.destruction import Data, empty_bucket, main
from thunder.local.checkout import Checkout

TARGET = Target(account="123456789012", region="eu-west-1", identity="arn:aws:iam::123456789012:user/me")
DEV, PROD = {"retainData": False}, {"retainData": True}


class Account:
    """An account with the data stack of `dev`; everything that is done to it, in order."""

    class exceptions:
        class ClientError(Exception): ...

    def __init__(self, *, protected=False, deployed=True, destroys=0):
        self._protected, self._deployed, self._destroys = protected, deployed, destroys
        self.done = []
        self.versions = {
            "Versions": [{"Key": "a", "VersionId": "1"}],
            "DeleteMarkers": [{"Key": "b", "VersionId": "2"}],
        }
        self.errors = []

    def __call__(self, service):
        return self

    def describe_stack_resources(self, StackName):
        if not self._deployed:
            raise self.exceptions.ClientError(f"Stack with id {StackName} does not exist")
        types = {"AWS::DynamoDB::GlobalTable": "the-table", "AWS::S3::Bucket": "the-bucket", "AWS::KMS::Key": "the-key"}
        return {"StackResources": [{"ResourceType": type, "PhysicalResourceId": id} for type, id in types.items()]}

    def describe_table(self, TableName):
        return {"Table": {"DeletionProtectionEnabled": self._protected}}

    def get_paginator(self, name):
        return self

    def paginate(self, Bucket):
        return [self.versions, {}]

    def delete_objects(self, Bucket, Delete):
        self.done.append((Bucket, [each["Key"] for each in Delete["Objects"]]))
        return {"Errors": self.errors}

    def destroy(self, checkout, environment, stack, target):
        self.done.append(stack)
        return self._destroys


@pytest.fixture
def destroy(tmp_path, monkeypatch):
    """`make destroy` in a checkout with these two environments."""
    context = {"environments": {"local": DEV, "dev": DEV, "prod": PROD}}
    (tmp_path / "cdk.json").write_text(json.dumps({"context": context}))
    monkeypatch.setattr(Checkout, "of_this_installation", classmethod(lambda cls: cls(tmp_path)))

    def run(account, *arguments, answer="", find_target=lambda: TARGET):
        return main(
            arguments,
            find_target=find_target,
            ask=lambda question: answer,
            clients=lambda target: account,
            destroy=account.destroy,
        )

    return run


ALL = ["ThunderAgent-dev", ("the-bucket", ["a", "b"]), "ThunderAgent-dev-Data"]


def test_the_name_typed_in_answer_destroys_functions_then_objects_then_data(destroy, capsys):
    account = Account()

    assert destroy(account, "dev", answer="dev") == 0
    assert account.done == ALL
    said = capsys.readouterr().err
    assert all(part in said for part in (TARGET.account, TARGET.region, "the-table", "the-bucket", "2 objects deleted"))


def test_yes_asks_nothing(destroy):
    account = Account()

    assert destroy(account, "dev", "--yes") == 0
    assert account.done == ALL


@pytest.mark.parametrize("answer", ["", "y", "yes", "prod"], ids=repr)
def test_any_other_answer_destroys_nothing(destroy, answer):
    account = Account()

    assert destroy(account, "dev", answer=answer) == 1
    assert account.done == []


def test_an_environment_that_keeps_its_data_is_refused_before_anything_is_asked(destroy, capsys):
    account = Account()

    assert destroy(account, "prod", "--yes", find_target=lambda: pytest.fail("asked AWS")) == 1
    assert account.done == []
    said = capsys.readouterr().err
    assert "prod keeps its data: environments.prod.retainData and environments.prod.deletionProtection say so" in said
    assert "make deploy ENV=prod" in said


def test_a_table_that_is_still_protected_is_refused(destroy, capsys):
    account = Account(protected=True)

    assert destroy(account, "dev", "--yes") == 1
    assert account.done == []
    assert "the deployed table the-table is protected" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["local"], ["staging"], ["--yes"], ["dev", "prod"]], ids=repr)
def test_what_is_no_environment_of_an_account_is_refused(destroy, arguments):
    assert destroy(Account(), *arguments) == 2


def test_what_was_never_deployed_is_destroyed_in_peace(destroy):
    account = Account(deployed=False)

    assert destroy(account, "dev", "--yes") == 0
    assert account.done == ["ThunderAgent-dev", "ThunderAgent-dev-Data"]


def test_a_failed_destruction_keeps_the_data(destroy):
    account = Account(destroys=5)

    assert destroy(account, "dev", "--yes") == 5
    assert account.done == ["ThunderAgent-dev"]


def test_an_object_that_cannot_be_deleted_is_told():
    account = Account()
    account.errors = [{"Key": "a", "Message": "Access Denied"}]

    with pytest.raises(RuntimeError, match="the-bucket: a: Access Denied"):
        empty_bucket(account, "the-bucket")


def test_another_failure_is_no_sign_of_absence():
    account = Account(deployed=False)
    account.describe_stack_resources = lambda StackName: (_ for _ in ()).throw(account.exceptions.ClientError("denied"))

    with pytest.raises(account.exceptions.ClientError):
        destruction.data_of(account, "x")
    assert Data() == destruction.data_of(Account(deployed=False), "x")
