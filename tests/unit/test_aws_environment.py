"""Where AWS is and who asks, as the environment says, in the SDK's own terms."""

from __future__ import annotations

import pytest
from botocore.loaders import Loader
from botocore.regions import EndpointResolver

from thunderagent.aws_environment import ca_file, endpoint_of, keys_in, needs_the_sdk, origin_of
from thunderagent.sigv4 import Keys


@pytest.mark.parametrize("service", ["dynamodb", "lambda"])
@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_the_endpoints_are_those_of_botocore(service: str, partition: str) -> None:
    resolver = EndpointResolver(Loader().load_data("endpoints"))
    regions = resolver.get_available_endpoints(service, partition)
    assert regions
    for region in regions:
        if "fips" in region or region == "local":
            continue
        assert needs_the_sdk(region, {}) is None
        assert endpoint_of(service, region, {}) == "https://" + resolver.construct_endpoint(service, region)["hostname"]


@pytest.mark.parametrize("region", ["us-iso-east-1", "eu-isoe-west-1", "us-isob-east-1", "xx-north-1", "here", ""])
def test_regions_of_other_partitions_are_left_to_botocore(region: str) -> None:
    assert needs_the_sdk(region, {}) == f"the endpoint of region {region!r} is not known"


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({"AWS_ENDPOINT_URL": "http://a"}, "http://a"),
        ({"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_DYNAMODB": "http://b"}, "http://b"),
        ({"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_LAMBDA": "http://b"}, "http://a"),
        (
            {"AWS_ENDPOINT_URL": "http://a", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
            "https://dynamodb.eu-west-1.amazonaws.com",
        ),
        ({"AWS_ENDPOINT_URL": ""}, "https://dynamodb.eu-west-1.amazonaws.com"),
    ],
)
def test_an_endpoint_may_be_given(environ: dict[str, str], endpoint: str) -> None:
    assert endpoint_of("dynamodb", "eu-west-1", environ) == endpoint


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://dynamodb.eu-west-1.amazonaws.com", (True, "dynamodb.eu-west-1.amazonaws.com", 443, None)),
        ("http://127.0.0.1:4566/", (False, "127.0.0.1", 4566, "127.0.0.1:4566")),
        ("http://[::1]:80", (False, "::1", 80, "[::1]")),
        ("https://localhost:443", (True, "localhost", 443, "localhost")),
    ],
)
def test_an_origin_is_taken_apart(url: str, origin: tuple[bool, str, int, str | None]) -> None:
    tls, host, port, header = origin
    assert origin_of(url) == (tls, host, port, header or host)


@pytest.mark.parametrize("url", ["http://a/path", "ftp://a", "http://user@a", "a:80", "http://a?b", "http://a:b", ""])
def test_what_is_more_than_an_origin_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        origin_of(url)


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({}, None),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, "AWS_USE_FIPS_ENDPOINT is set"),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "True"}, "AWS_USE_DUALSTACK_ENDPOINT is set"),
        ({"AWS_USE_FIPS_ENDPOINT": "false"}, None),
        ({"HTTPS_PROXY": "http://proxy"}, "HTTPS_PROXY is set"),
        ({"all_proxy": "http://proxy"}, "all_proxy is set"),
        ({"HTTPS_PROXY": "http://proxy", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, None),
        ({"AWS_ENDPOINT_URL": "http://a/path"}, "'http://a/path' is not of the form https://host:port"),
        ({"AWS_ENDPOINT_URL_LAMBDA": "ftp://a"}, "'ftp://a' is not of the form https://host:port"),
    ],
)
def test_what_only_the_sdk_can_heed_is_named(environ: dict[str, str], reason: str | None) -> None:
    assert needs_the_sdk("eu-west-1", environ) == reason


@pytest.mark.parametrize(
    ("environ", "keys"),
    [
        ({}, None),
        ({"AWS_ACCESS_KEY_ID": "a"}, None),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "b"}, None),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, Keys("a", "b")),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}, Keys("a", "b", "c")),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": ""}, Keys("a", "b")),
    ],
)
def test_keys_are_taken_whole_or_not_at_all(environ: dict[str, str], keys: Keys | None) -> None:
    assert keys_in(environ) == keys


def test_other_authorities_may_be_trusted() -> None:
    assert ca_file({}) is None
    assert ca_file({"REQUESTS_CA_BUNDLE": "r", "AWS_CA_BUNDLE": "a"}) == "a"
