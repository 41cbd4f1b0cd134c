"""Files outside docs/ as pages of the site: results, benchmarks, the changelog, and every source file that is linked.

Pages link to such files by their path, so the same link works in a checkout and on the site. A link to a file that does
not exist fails the build.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
_ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md")
_COPIED = {".csv", ".html", ".png", ".svg", ".tex"}
_LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml", ".yaml": "yaml", ".cff": "yaml"}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add every file of the repository that a page of the site links to, directly or through another."""
    pending = [f"docs/{file.src_uri}" for file in files.documentation_pages()] + list(_ALWAYS)
    known = set(pending)
    for name in _ALWAYS:
        files.append(_site_file(name, config))
    while pending:
        page = pending.pop()
        for path in _linked(page):
            if path in known or path.startswith("docs/"):
                continue
            known.add(path)
            files.append(_site_file(path, config))
            if path.endswith(".md"):
                pending.append(path)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links to their pages."""
    del config, files
    here = page.file.src_uri
    if here.startswith("source/"):
        return markdown
    origin = f"docs/{here}" if (ROOT / "docs" / here).exists() else here

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match[1]))
        return posixpath.relpath(_site_uri(path), posixpath.dirname(here) or ".")

    return _LINK.sub(replace, markdown)


def _linked(page: str) -> Iterator[str]:
    path = ROOT / page
    if not path.exists():  # generated, such as the command line's page
        return
    for link in _LINK.findall(path.read_text()):
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
        if not (ROOT / linked).is_file() and not linked.startswith("docs/"):
            raise PluginError(f"{page} links to {link}, which is not a file of the repository.")
        yield linked


def _site_file(path: str, config: MkDocsConfig) -> File:
    if path.endswith(".md") or Path(path).suffix in _COPIED:
        return File.generated(config, _site_uri(path), abs_src_path=str(ROOT / path))
    language = _LANGUAGES.get(Path(path).suffix, "text")
    code = (ROOT / path).read_text()
    content = f"---\nsearch:\n  exclude: true\n---\n# `{path}`\n\n``````{language}\n{code}``````\n"
    return File.generated(config, _site_uri(path), content=content)


def _site_uri(path: str) -> str:
    """Return where a file of the repository is on the site."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.endswith(".md") or Path(path).suffix in _COPIED else f"source/{path}.md"
