"""JSON typed into a form: read as strictly as the API reads it, so that what is wrong is said beside the field."""

from __future__ import annotations

from typing import Any

from thunder.console.forms import FieldError, Fields
from thunderagent import jsontext
from thunderagent.errors import InvalidInput


def typed_json(form: Fields, name: str, *, default: Any = None) -> Any:
    """The value of a JSON field; the default when it is empty. Raises FieldError with the place of the defect."""
    text = form.raw(name)
    if not text.strip():
        return default
    try:
        return jsontext.loads(text, root=name)
    except InvalidInput as error:
        hint = "; a text needs its quotes" if text.strip()[:1].isalpha() else ""
        raise FieldError(name, f"{error}{hint}") from None
