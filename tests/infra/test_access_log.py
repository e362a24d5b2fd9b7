"""A line of the access log is JSON also for calls that were refused: those are the ones looked for."""

from __future__ import annotations

import json
import re

from tests.infra.templates import Synthesised, properties

# As API Gateway documents its variables ("Customize HTTP API access logs"): what is absent is a hyphen, and
# `messageString` is the message in quotes.
REFUSED = {
    "$context.error.message": "Forbidden",
    "$context.error.messageString": '"Forbidden"',
    "$context.status": "403",
}


def written(format: str) -> str:
    return re.sub(r"\$context(\.\w+)+", lambda variable: REFUSED.get(variable[0], "-"), format)


def test_the_line_of_a_refused_call_is_json(prod: Synthesised) -> None:
    (stage,) = properties(prod.service, "AWS::ApiGatewayV2::Stage")
    line = json.loads(written(stage["AccessLogSettings"]["Format"]))
    assert (line["status"], line["error"], line["caller"]) == ("403", "Forbidden", "-")


def test_it_names_nothing_that_is_secret_or_free_text_of_the_body(prod: Synthesised) -> None:
    (stage,) = properties(prod.service, "AWS::ApiGatewayV2::Stage")
    logged = set(re.findall(r"\$context(?:\.\w+)+", stage["AccessLogSettings"]["Format"]))
    assert len(logged) > 8
    assert not [name for name in logged if re.search("header|body|query|authorization|userAgent|claims", name)]
