"""The one version: of the library, its deployment, the command and the API. Packaging reads it here too."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
