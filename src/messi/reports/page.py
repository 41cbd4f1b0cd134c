"""One page that shows what runs did: a single file that needs no network and runs no script."""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from messi.core.errors import MessiError
from messi.core.files import write_text
from messi.core.records import RoutingRecord
from messi.reports.charts import accuracy_chart, loss_charts
from messi.reports.domains import by_domain, pictures
from messi.reports.runs import FinishedRun, read_run
from messi.reports.settings import rerun_snippet, settings_table
from messi.reports.tables import percent, result_rows, result_table
from messi.reports.words import part_in_words, summary, title


def write_report(runs: Sequence[Path], out: Path) -> None:
    """Write a page about one or several finished runs."""
    if not runs:
        raise MessiError("A report needs at least one run folder, but none was given.")
    page = render([read_run(path) for path in runs])
    # A file name that is not UTF-8 reaches a record as lone surrogates, which no file can hold.
    write_text(out, page.encode("utf-8", "replace").decode())


def render(runs: Sequence[FinishedRun]) -> str:
    """Return the page as HTML."""
    environment = Environment(
        loader=PackageLoader("messi.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["part_in_words"] = part_in_words
    rows = result_rows(runs)
    routing = {place: by_domain(run.of_kind(RoutingRecord)) for place, run in enumerate(runs)}
    return environment.get_template("page.html").render(
        title=title(runs),
        summary=summary(runs, rows),
        runs=runs,
        rows=rows,
        table=result_table(rows),
        accuracy=accuracy_chart(runs),
        losses=loss_charts(runs),
        routing={place: groups for place, groups in routing.items() if groups},
        unrouted=[rows[place].label for place, groups in routing.items() if not groups],
        examples=by_domain(pictures(runs)),
        settings=settings_table(runs),
        snippet=rerun_snippet(runs),
    )
