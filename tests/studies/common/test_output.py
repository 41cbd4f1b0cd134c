"""The page of a plan: sortable tables, figures, the state of every run, and the commands that write it."""

import json
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

from messi.cli.main import main
from messi.core.documents import read_values, write_document
from messi.experiments.domain_growth import DomainGrowth
from messi.experiments.lambda_sweep import LambdaSweep
from messi.experiments.readings import Readings
from messi.reports.plan_page import Figure
from messi.studies.common.base import EXPERIMENTS
from messi.studies.common.output import featured_runs, write_results
from messi.studies.common.results import Results
from messi.sweeps.plan import Label
from tests.studies.made_runs import made_results

RULES: dict[str, Any] = {
    "selected_step": 100, "selection": "source_val", "target_part": "all", "protocol": "messi", "deviations": {},
    "source_val": {"s": 0.812, "r": 0.9},
}  # fmt: skip
EVALUATION = {"kind": "evaluation", "step": 100, "count": 9, "accuracy": 0.5, "loss": 1.0}
DOMAINS = ({"role": "source_val", "domain": "s"}, {"role": "target", "domain": "t"})
ACCURACY = {"ERM": 0.7, "CORAL (gamma=1)": 0.65, "CORAL (gamma=500)": 0.095, "MESSI": 0.72}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small plan with finished runs, one failed run and one waiting run."""
    experiment, folder = DomainGrowth(scale="small"), tmp_path / "plan"

    def made(labels: Mapping[str, Label]) -> dict[str, Any] | str | None:
        if labels["K"] == 17 and labels["method"] in ("CORAL (gamma=500)", "MESSI"):
            return "Traceback\n<b>out of memory</b>" if labels["method"] == "MESSI" else None
        return {"result": {"target": {"rot0-p0.5": ACCURACY[str(labels["method"])]}, **RULES}}

    write_records(made_results(folder, experiment, made))
    (folder / "plan.json").write_text(json.dumps(experiment.to_dict()))
    return folder


def write_records(results: Results) -> None:
    """Give every finished run the records that its page needs."""
    for outcome in results.outcomes:
        if outcome.state == "done":
            lines = (json.dumps({**EVALUATION, **one}) + "\n" for one in DOMAINS)
            (outcome.path / "records.jsonl").write_text("".join(lines))


def test_a_partially_finished_plan_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder)]) == 0
    told = capsys.readouterr().out
    assert str(folder / "report.html") in told
    assert "left out" not in told
    document = (folder / "tables" / "README.md").read_text()
    assert "5,000 embedded digits instead of 70,000" in document
    assert "messi reproduce domain_growth --scale small" in document
    assert "failed" in (folder / "tables" / "domain_growth_full.md").read_text()
    page = (folder / "report.html").read_text()
    assert "10 done, 1 waiting, 1 failed" in page
    assert "<b>out of memory" not in page
    assert "&lt;b&gt;out of memory" in page
    assert page.count("a GPU, torch 2.0") == 1


def test_a_machine_without_a_gpu_is_shown_as_cpu(folder: Path) -> None:
    for file in folder.glob("runs/*/run.json"):
        described = read_values(file, str)
        described["environment"] = {"gpu": "none", "torch": "2.0", "cuda": "13.0", "python": "3.11.7"}
        write_document(file, described)
    main(["report", str(folder)])
    page = (folder / "report.html").read_text()
    assert "<dt>Trained on</dt><dd>CPU, torch 2.0, python 3.11.7</dd>" in page


def test_runs_in_detail_share_the_last_task_that_all_methods_finished(folder: Path, browser: Browser) -> None:
    """With 17 domains, MESSI failed and the strongest CORAL is waiting."""
    main(["report", str(folder)])
    page = browser.new_page()
    page.goto((folder / "report.html").as_uri())
    assert page.locator("#runs tbody th").all_inner_texts() == [
        " ERM", " MESSI", " CORAL (gamma=500)", " CORAL (gamma=1)",
    ]  # fmt: skip
    sources = page.locator("#settings tr", has_text="num_sources").locator("td")
    assert sources.all_inner_texts() == ["9"]
    for lost in ("CORAL-gamma=500-_K9_*", "MESSI_K3_*"):  # now there is no such task, so each shows its last run
        (run,) = (folder / "runs").glob(lost)
        (run / "result.json").unlink()
    main(["report", str(folder)])
    page.reload()
    assert sources.all_inner_texts() == ["17", "9", "3", "17"]


def test_runs_in_detail_start_with_the_baseline(tmp_path: Path) -> None:
    experiment = Readings(seeds=2)

    def made(labels: Mapping[str, Label]) -> dict[str, Any] | None:
        return None if (labels["method"], labels["K"], labels["seed"]) == ("ERM", 17, 1) else {"result": RULES}

    results = made_results(tmp_path, experiment, made)
    write_records(results)
    featured = featured_runs(results.outcomes, experiment.compared_with)
    last = ["learning rate 0.003", "learning rate 0.0003", "no regularisers", "balance weight 0.2", "ssi weight 10"]
    assert [run.label for run in featured.runs] == ["MESSI, defaults", *last]
    tasks = {(run.config["data"]["num_sources"], run.seed) for run in featured.runs}
    assert tasks == {(17, 1)}, "that ERM, which is not shown, has not finished it does not matter"
    assert (featured.methods, featured.damaged) == (20, {})


@pytest.mark.parametrize("scale", ["full", "small"])
@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_the_baseline_is_a_method_of_the_plan(name: str, scale: str) -> None:
    experiment = EXPERIMENTS.config(name)(scale=scale)
    methods = {str(run.labels["method"]) for run in experiment.runs()}
    assert experiment.compared_with in methods | {""}


LINE = json.dumps({**EVALUATION, **DOMAINS[0]})
DAMAGES = {
    "records.jsonl": {
        "records.jsonl, line 1, is not a record of messi": f"{LINE[:40]}\n{LINE}\n",
        "records.jsonl lacks evaluations of the selected step 100": f"{LINE}\n",
    },
    "diagnostics.json": {
        "diagnostics.json is damaged": '{"routing": {',
        "diagnostics.json is damaged: it has no checksum": '{"calibration": 3}',
    },
}


@pytest.mark.parametrize(
    ("file", "reason", "content"),
    [(file, reason, content) for file, by_reason in DAMAGES.items() for reason, content in by_reason.items()],
)
def test_a_damaged_run_is_missing_only_from_the_runs_in_detail(
    folder: Path, browser: Browser, capsys: pytest.CaptureFixture[str], file: str, reason: str, content: str
) -> None:
    main(["report", str(folder)])
    tables = {table.name: table.read_bytes() for table in (folder / "tables").iterdir()}
    (run,) = (folder / "runs").glob("MESSI_K9_*")
    (run / file).write_text(content)
    capsys.readouterr()
    assert main(["report", str(folder)]) == 0
    (told,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out")]
    assert told.startswith(f"left out  {run.name} from the runs in detail: {run}")
    assert reason in told
    assert {table.name: table.read_bytes() for table in (folder / "tables").iterdir()} == tables
    page = browser.new_page()
    page.goto((folder / "report.html").as_uri())
    assert page.locator("#runs tbody th").all_inner_texts() == [" ERM", " CORAL (gamma=500)", " CORAL (gamma=1)"]
    assert "one run of each of 3 of 4 methods" in page.inner_text("main")
    row = page.locator("#plan tbody tr", has_text=run.name).locator("td")
    assert row.all_inner_texts()[2:] == ["72.0", "85.6", "100", "done", told.partition("runs in detail: ")[2], run.name]
    failed = page.locator("#plan tbody tr", has_text="failed").locator("td")
    assert failed.all_inner_texts()[5:7] == ["failed", "<b>out of memory</b>"]
    assert main(["report", str(run), "--out", str(folder / "run.html")]) == 2
    assert reason in capsys.readouterr().err


def test_a_partial_last_line_is_not_damage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = (folder / "runs").glob("MESSI_K9_*")
    with (run / "records.jsonl").open("a") as records:
        records.write(LINE[:40])
    assert main(["report", str(folder)]) == 0
    assert "left out" not in capsys.readouterr().out
    assert "one run of each method," in " ".join((folder / "report.html").read_text().split())


def test_without_readable_runs_the_page_has_no_details(folder: Path) -> None:
    for run in (folder / "runs").glob("*_K9_*"):
        (run / "records.jsonl").write_text("{\n")
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "Runs in detail" not in page
    assert page.count("records.jsonl, line 1, is not a record of messi") == 4


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_a_plan_without_finished_runs_has_a_page(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS.config(name)(scale="small")
    (tmp_path / "plan.json").write_text(json.dumps(experiment.to_dict()))
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    waiting = len(experiment.runs())
    assert f"<dd>{f'{waiting} waiting' if waiting else 'none required'}</dd>" in page
    assert "in detail" not in page


def test_the_page_sorts_by_value_without_console_messages_or_requests(folder: Path, browser: Browser) -> None:
    main(["report", str(folder)])
    schemes: dict[Literal["light", "dark"], int] = {"light": 1280, "dark": 390}
    for scheme, width in schemes.items():
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        problems, requests = listen(page)
        page.goto((folder / "report.html").as_uri())
        table = page.locator("#table-domain_growth_full")
        table.locator("thead th", has_text="K = 3").get_by_role("button").click()
        rows = table.locator("tbody th").all_inner_texts()
        assert rows == ["MESSI", "ERM", "CORAL (gamma=1)", "CORAL (gamma=500)"]  # 9.5 is not above 65
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("figure svg").count() >= 1
        assert problems == []
        assert requests == [(folder / "report.html").as_uri()]
        context.close()


def listen(page: Page) -> tuple[list[str], list[str]]:
    """Return the lists of console messages and requests that a page will fill."""
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    return problems, requests


def test_a_figure_of_three_panels_fits_a_desktop_and_scrolls_on_a_phone(tmp_path: Path, browser: Browser) -> None:
    experiment = LambdaSweep(scale="small")

    def made(labels: Mapping[str, Label]) -> dict[str, Any]:
        measured = {"discrepancy": {"energy": 0.1}, "probe": {"accuracy": 0.5, "chance": 0.2}}
        return {"result": {"target": {"0": 0.5}, **RULES}, "diagnostics": measured}

    results = made_results(tmp_path, experiment, made)
    (figure,) = [section for section in experiment.report(results) if isinstance(section, Figure)]
    assert figure.svg.count('class="head"') == 3
    write_records(results)
    write_results(experiment, results.outcomes, tmp_path)
    for width, whole in ((1280, True), (390, False)):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto((tmp_path / "report.html").as_uri())
        box = page.locator("figure.scroll", has=page.locator("svg"))
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth") == whole
        page.close()


def test_the_page_can_be_written_elsewhere(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--out", str(tmp_path / "mine.html")]) == 0
    assert f"report  {tmp_path / 'mine.html'}" in capsys.readouterr().out
    assert "10 done, 1 waiting, 1 failed" in (tmp_path / "mine.html").read_text()
    assert not (folder / "report.html").exists()
    assert (folder / "tables" / "README.md").exists()


def test_the_printed_command_resumes_in_the_folder_of_the_plan(folder: Path) -> None:
    command = "messi reproduce domain_growth --scale small"
    places = {"plan": f"{command} --out plan", "my plan": f"{command} --out 'my plan'"}
    for place, wanted in {**places, "reproduce/domain_growth-small": command}.items():
        Path(place).parent.mkdir(exist_ok=True)
        folder = folder.rename(place)
        assert main(["report", place]) == 0
        assert f"    {wanted}\n" in (folder / "tables" / "README.md").read_text()
        assert f">{wanted}</pre>" in unescape((folder / "report.html").read_text())


def test_a_damaged_result_fails_only_its_cell(folder: Path) -> None:
    main(["report", str(folder)])
    before = (folder / "tables" / "domain_growth_full.md").read_text().splitlines()
    (run,) = (folder / "runs").glob("ERM_K9_*")
    (run / "result.json").write_text('{"target": {')
    assert main(["report", str(folder)]) == 0
    after = (folder / "tables" / "domain_growth_full.md").read_text()
    rows = [line for line in after.splitlines() if line.startswith("| CORAL")]
    assert len(rows) == 2
    assert set(rows) <= set(before)
    (row,) = [line for line in after.splitlines() if line.startswith("| ERM ")]
    assert row.count("failed") == 1
    assert "result.json is damaged: " in after
    assert "9 done, 2 failed, 1 waiting" in (folder / "report.html").read_text()


def test_folders_outside_the_plan_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runs" / "of_other_settings").mkdir()
    assert main(["report", str(folder)]) == 0
    assert f"left out  of_other_settings in {folder / 'runs'}" in capsys.readouterr().out


def test_a_plan_cannot_be_combined_with_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), str(folder)]) == 2
    assert "is a plan" in capsys.readouterr().err


def test_a_dry_run_lists_the_runs_and_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "domain_growth", "--dry-run", "--out", str(tmp_path / "plan")]) == 0
    output = capsys.readouterr().out
    assert output.count("waiting") == 192
    assert not (tmp_path / "plan").exists()


def test_missing_data_is_reported_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "domain_growth", "--digits", str(tmp_path / "nowhere"), "--out", str(tmp_path / "plan")]
    assert main(command) == 2
    assert "nowhere" in capsys.readouterr().err
    assert not (tmp_path / "plan").exists()


def test_every_experiment_is_listed_with_a_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    output = capsys.readouterr().out
    assert "domain_growth" in output
    assert "theory" in output
