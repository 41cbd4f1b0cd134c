import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from messi.core.documents import write_document
from messi.core.errors import MessiError
from messi.core.records import EvaluationRecord, Record, TrainRecord
from messi.reports import diagnostics
from messi.reports.charts import Chart, Series
from messi.reports.html import render_page
from messi.reports.page import run_values, write_report
from messi.reports.runs import FinishedRun, read_run
from messi.reports.settings import compare_settings

from .documents import document
from .helpers import HOSTILE_ATTRIBUTE, HOSTILE_TAG, Sample


class Outline(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs


def page_of(out: Path, *samples: Sample) -> str:
    paths = [sample.write(out.with_suffix("") / f"run{place}") for place, sample in enumerate(samples)]
    write_report(paths, out)
    return out.read_text(encoding="utf-8")


def hostile(name: str) -> Sample:
    return Sample(
        algorithm=name,
        sources={name: (0.1, 0.2, 0.1), f"{name}2": (0.1, 0.2, 0.1)},
        targets={f"target {name}": 0.5},
        classes=(name, f"other {name}"),
        fingerprint=name,
        settings={name: name},
        diagnostics=document(domains=(name, f"{name}2"), targets=(f"target {name}",), classes=(name, f"other {name}")),
    )


@pytest.mark.parametrize(
    "name", [HOSTILE_TAG, HOSTILE_ATTRIBUTE, "'onload='x", "</style><b>", "</title><b>", "{{ 1 }}"]
)
def test_names_never_become_markup(tmp_path: Path, name: str) -> None:
    page = page_of(tmp_path / "page.html", hostile(name), hostile(name))
    plain, found = Outline(page_of(tmp_path / "plain.html", hostile("name"), hostile("name"))), Outline(page)
    assert found.tags == plain.tags
    assert not [key for key, _ in found.attributes if key.startswith("on")]
    assert {key for key, _ in found.attributes} == {key for key, _ in plain.attributes}


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = page_of(tmp_path / "page.html", Sample())
    links = [value or "" for key, value in Outline(page).attributes if key in ("src", "href")]
    assert links
    assert all(link.startswith(("data:", "#")) for link in links)
    assert "url(" not in page
    assert "@import" not in page


def test_a_missing_router_and_missing_images_are_reported(tmp_path: Path) -> None:
    diagnostics = document(experts=0)
    page = page_of(tmp_path / "page.html", Sample(algorithm="erm", experts=(), images=False, diagnostics=diagnostics))
    assert "No routing to show for erm: the method has no router." in page
    assert "No slots to show for erm: slots require a router and two source domains." in page
    assert "No example images to show" in page
    assert 'class="heat' not in page
    assert 'class="slots' not in page


def test_a_single_expert_has_no_similarity(tmp_path: Path) -> None:
    diagnostics = document()
    del diagnostics["similarity"]  # as of a run with one expert
    page = page_of(tmp_path / "page.html", Sample(diagnostics=diagnostics))
    assert "No similarity of experts to show for messi: the method has fewer than two experts." in page


def test_hard_routing_is_noted_only_for_runs_that_use_it(tmp_path: Path) -> None:
    said = "Every input goes to one expert with weight 1"
    one, sure, several = (document() for _ in range(3))
    one["router"] = several["router"] = "blocks"
    one["routing"]["entropy"] = sure["routing"]["entropy"] = 0  # a softmax may be as sure as that
    others = [Sample(diagnostics=sure), Sample(algorithm="omoe", diagnostics=several), Sample(algorithm="erm")]
    assert said not in page_of(tmp_path / "others.html", *others)
    page = page_of(tmp_path / "page.html", *others, Sample(algorithm="gmoe", diagnostics=one))
    assert page.count(said) == 1
    assert "gmoe" in page[page.index('id="routing"') : page.index(said)].rpartition("<summary>")[2]


def test_label_noise_is_noted_at_the_mistakes(tmp_path: Path) -> None:
    said = "This data set contains 25.0\N{NO-BREAK SPACE}% deliberately wrong labels"
    exact = Sample(diagnostics=document(), data={"label_noise": 0.0})
    noisy = Sample(diagnostics=document(), data={"label_noise": 0.25})
    assert "deliberately wrong" not in page_of(tmp_path / "exact.html", exact, Sample(diagnostics=document()))
    page = page_of(tmp_path / "page.html", exact, noisy).replace("&nbsp;", "\N{NO-BREAK SPACE}")
    assert page[page.index('id="mistakes"') :].count(said) == page.count(said) == 1


def test_only_the_run_without_router_is_named(tmp_path: Path) -> None:
    page = page_of(tmp_path / "page.html", Sample(), Sample(algorithm="erm", experts=()))
    assert "No routing to show for erm:" in page
    assert "No example images" not in page


def test_an_image_that_two_runs_share_is_embedded_once(tmp_path: Path) -> None:
    page = page_of(tmp_path / "page.html", Sample(), Sample(algorithm="erm", experts=()))
    assert page.count("data:image/png") == 3
    assert page.count('class="said"') == 6


def test_different_data_is_noted(tmp_path: Path) -> None:
    warning = "Different data."
    assert warning not in page_of(tmp_path / "same.html", Sample(), Sample(seed=1))
    assert warning in page_of(tmp_path / "other.html", Sample(), Sample(fingerprint="beef"))


def test_a_name_that_is_not_utf8_can_be_written(tmp_path: Path) -> None:
    page = page_of(tmp_path / "page.html", Sample(targets={"caf\udce9": 0.5}))
    assert "caf?" in page


def test_a_run_that_was_copied_without_its_pictures_has_a_page(tmp_path: Path) -> None:
    path = Sample().write(tmp_path / "run")
    shutil.rmtree(path / "examples")
    write_report([path], tmp_path / "page.html")
    assert "were copied without <code>examples</code>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("content", [None, b"no picture"])
def test_a_lost_image_is_named_and_the_earlier_page_is_kept(tmp_path: Path, content: bytes | None) -> None:
    out = tmp_path / "page.html"
    out.write_text("the page before")
    path = Sample().write(tmp_path / "run")
    image = path / "examples" / "2.png"
    image.unlink()
    if content is not None:
        image.write_bytes(content)
    with pytest.raises(MessiError, match=r"2\.png (cannot be read: No such file|is not a PNG)"):
        write_report([path], out)
    assert out.read_text() == "the page before"
    assert {file.name for file in tmp_path.iterdir()} == {"page.html", "run"}


def test_half_an_image_is_named(tmp_path: Path) -> None:
    path = Sample().write(tmp_path / "run")
    image = path / "examples" / "2.png"
    Image.effect_noise((200, 200), 90).save(image)
    image.write_bytes(image.read_bytes()[:5000])
    with pytest.raises(MessiError, match=r"The example image .*2\.png is damaged: "):
        write_report([path], tmp_path / "page.html")


def test_records_that_lack_a_target_are_named(tmp_path: Path) -> None:
    path = Sample(targets={"sketch": 0.5, "clipart": 0.25}, images=False).write(tmp_path / "run")
    records = path / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    lost = next(place for place, line in enumerate(lines) if '"evaluation"' in line and '"clipart"' in line)
    records.write_text("".join(lines[:lost]))
    with pytest.raises(MessiError, match=r"records\.jsonl lacks evaluations of the selected step 20"):
        write_report([path], tmp_path / "page.html")


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MessiError, match="at least one run folder"):
        write_report([], tmp_path / "page.html")


def test_settings_that_only_one_method_has_do_not_differ(tmp_path: Path) -> None:
    erm = read_run(Sample(algorithm="erm", settings={"lr": 1}).write(tmp_path / "erm"))
    messi = read_run(Sample(settings={"lr": 2, "sharpness": 4.0}).write(tmp_path / "messi"))
    config = {setting.name: setting for setting in compare_settings([erm, messi])["Config"]}
    assert config["algorithm.sharpness"].values == (None, "4.0")
    assert [name for name, setting in config.items() if setting.differs] == ["algorithm.name", "algorithm.lr"]
    assert not config["algorithm.sharpness"].common
    assert config["training.steps"].common
    # Settings of one part stand together although only the second run has the last of them.
    assert list(config)[2:5] == ["algorithm.name", "algorithm.lr", "algorithm.sharpness"]


def test_diagnostics_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = Sample(diagnostics=document()).write(tmp_path / "run")
    file = path / "diagnostics.json"
    for content, reason in (("{", "is damaged: Expecting property name"), ("[]", "it must contain one JSON object")):
        file.write_text(content)
        with pytest.raises(MessiError, match=rf"diagnostics\.json .*{reason}.* Or remove it to get a report"):
            write_report([path], tmp_path / "page.html")
    for values, reason in (
        ({"slots": {"pairs": [[0, 1]]}}, r"cannot be read by this version: slots\.responsibilities is missing"),
        ({"calibration": 3}, "cannot be read by this version: calibration must be an object"),
    ):
        write_document(file, values)
        with pytest.raises(MessiError, match=rf"diagnostics\.json .*{reason}.* Or remove it to get a report"):
            write_report([path], tmp_path / "page.html")


def test_missing_diagnostics_are_reported_once(tmp_path: Path) -> None:
    page = page_of(tmp_path / "page.html", Sample(), Sample(seed=1))
    assert page.count("diagnostics.json") == 1
    assert 'href="#embedding"' not in page
    mixed = page_of(tmp_path / "mixed.html", Sample(diagnostics=document()), Sample(algorithm="erm", experts=()))
    assert "No embedding to show for erm: the run folder has no diagnostics.json." in mixed


def test_ten_runs_of_many_domains_and_classes_stay_small(tmp_path: Path) -> None:
    domains, classes = [f"location {number}" for number in range(20)], [f"species {number}" for number in range(345)]
    diagnostics = document(domains=domains, classes=classes, experts=6, points=600, pictures=8)
    more: list[Record] = [
        TrainRecord(step=step, terms=dict.fromkeys("abcde", 1 / step)) for step in range(40, 5001, 10)
    ]
    more += [
        EvaluationRecord(step=step, role="source_val", domain=domain, count=30, accuracy=step / 5000, loss=0.1)
        for step in range(200, 5001, 200) for domain in domains
    ]  # fmt: skip
    sample = Sample(
        steps=5000,
        sources=dict.fromkeys(domains, (0.5, 0.8, 0.7)),
        classes=tuple(classes),
        more=tuple(more),
        diagnostics=diagnostics,
    )
    run = read_run(sample.write(tmp_path / "run"))  # reading ten such runs takes most of the time
    runs = [replace(run, seed=seed, config={**run.config, "seed": seed}) for seed in range(10)]
    page = render_page("page.html", **run_values(runs))
    assert len(page.encode()) < 5_000_000
    assert "20 classes and 21 pairs of domains with the largest weights; not shown: 325 classes, 169 pairs." in page
    assert "the most concentrated routing; 285 more are not shown" in page


def test_a_page_can_be_written_without_torch(tmp_path: Path) -> None:
    path = Sample().write(tmp_path / "run")
    code = (
        "import sys, pathlib\n"
        "from messi.reports.page import write_report\n"
        "write_report([pathlib.Path(sys.argv[1])], pathlib.Path(sys.argv[2]))\n"
        "sys.exit('torch' in sys.modules)"
    )
    out = tmp_path / "page.html"
    assert subprocess.run([sys.executable, "-c", code, str(path), str(out)], check=False).returncode == 0
    assert out.exists()


def test_a_section_of_charts_requires_only_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(run: FinishedRun) -> list[Chart]:
        if not run.diagnostics:
            return []
        points = {1.0: run.diagnostics["probe"]["accuracy"], 2.0: 0.5}
        return [Chart(title="Probe by layer", x="layer {}", series=(Series("probe", points),), note="Of two layers.")]

    kind = diagnostics._Kind(build, "No probes", "there are none", title="Probes", caption="What layers reveal.")
    monkeypatch.setitem(diagnostics._KINDS, "probes", kind)
    page = page_of(tmp_path / "page.html", Sample(diagnostics=document()), Sample(algorithm="erm", experts=()))
    section = page[page.index('<section id="probes">') :].partition("</section>")[0]
    parts = ("Probes", "What layers reveal.", "Probe by layer", "layer 1\nprobe: 0.61", "Of two layers.")
    assert [part for part in parts if part not in section] == []
    assert "No probes to show for erm: the run folder has no diagnostics.json." in section
    assert '<a href="#probes">Probes</a>' in page
