"""What MkDocs does beyond copying: the API's reference and the prices come from where the code reads them."""

from __future__ import annotations

import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "layers" / "thunderagent" / "python" / "thunderagent"
MERMAID = re.compile(r"^```mermaid\n.*?^```$", re.MULTILINE | re.DOTALL)
# Links to files of the repository that are not part of the site: their text stays, as code where it is a path.
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!images/)[^)]*\)")


def _beside(name: str) -> Any:
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_files(files: Any, config: Any) -> Any:
    """One page more: every call of the API, from the document the API itself reads."""
    from mkdocs.structure.files import File

    document = json.loads((LIBRARY / "openapi.json").read_text())
    files.append(File.generated(config, "api-reference.md", content=_beside("reference").page(document)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Diagrams as pictures (a site without a network renders none), the prices, and no links out of the site."""
    # GitHub draws the fences; the picture says the same.
    markdown = MERMAID.sub("![The states of a task and what moves it between them](images/state-machine.svg)", markdown)
    if page.file.src_uri == "calculator.md":
        markdown = markdown.replace("PRICES_JSON", (LIBRARY / "prices.json").read_text().strip())
    if "/" in page.file.src_uri:
        return markdown
    return OUTSIDE.sub(lambda found: found.group(1), markdown)
