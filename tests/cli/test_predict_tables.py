"""Training on a table and predicting another one: columns by name, answers next to the rows, one sentence per error."""

import csv
import io
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from messi.cli.main import main
from messi.core.errors import MessiError
from messi.evaluation.model import load
from messi.studies.common.hold_out import find_data_set

OPTIONS = ("--label", "diagnosis", "--domain", "hospital", "--ignore", "id")
SHORT = ("--steps", "20", "--evaluate-every", "10", "--batch-per-domain", "8", "--device", "cpu")
RANDOM = np.random.default_rng(0)


def patients(number: int = 120) -> pandas.DataFrame:
    sick = RANDOM.integers(0, 2, number)
    frame = pandas.DataFrame(
        {
            "id": [f"p{i}" for i in range(number)],
            "age": RANDOM.integers(20, 80, number).astype(float),
            "ward": RANDOM.choice(["north", "south"], number),
            "lab": 3000 * sick + 500 * RANDOM.normal(size=number),
            "hospital": np.repeat(["A", "B", "C"], number // 3),
            "diagnosis": np.where(sick, "sick", "healthy"),
        }
    )
    frame.loc[RANDOM.random(number) < 0.2, "age"] = None
    return frame


FRAME = patients()


@pytest.fixture(scope="module", name="trained")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    FRAME.to_csv(folder / "t.csv", index=False)
    train = ["train", "--data", str(folder / "t.csv"), *OPTIONS, "--target", "C", "--learning-rate", "0.01"]
    assert main([*train, "--algorithm", "messi", *SHORT, "--out", str(folder / "run")]) == 0
    return folder / "run"


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[list[dict[str, str]], str]:
    capsys.readouterr()
    assert main(["predict", *map(str, arguments), "--device", "cpu", "--format", "csv"]) == 0
    said = capsys.readouterr()
    return list(csv.DictReader(io.StringIO(said.out))), said.err


def test_answers_are_appended_to_the_rows(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = FRAME.iloc[80:].drop(columns=["diagnosis", "hospital"])
    new.to_csv(tmp_path / "new.csv", index=False)
    rows, said = predicted(capsys, trained, tmp_path / "new.csv")
    assert said == ""
    answers = load(trained).predict(new)
    assert answers.experts is not None
    own = ["id", "age", "ward", "lab"]
    experts = [f"expert{m + 1}" for m in range(answers.experts.shape[1])]
    assert list(rows[0]) == [*own, "class", "probability", "probability_healthy", "probability_sick", *experts]
    assert [row["id"] for row in rows] == new["id"].tolist()
    assert [row["age"] for row in rows] == ["" if age != age else str(age) for age in new["age"]]  # noqa: PLR0124
    assert [row["class"] for row in rows] == answers.labels
    given = torch.tensor([[float(row[f"probability_{name}"]) for name in ("healthy", "sick")] for row in rows])
    torch.testing.assert_close(given, answers.probabilities)
    right = np.array(answers.labels) == FRAME["diagnosis"].to_numpy()[80:]
    assert right.mean() > 0.9


def test_columns_may_be_in_another_order_and_format(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = FRAME.iloc[:9]
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[frame.columns[::-1]].assign(more=1).to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "c.parquet")
    (first, _), *others = (predicted(capsys, trained, tmp_path / name) for name in ("a.csv", "b.tsv", "c.parquet"))
    for other, _ in others:
        for key in ("id", "class", "probability_sick", "expert1"):
            assert [row[key] for row in other] == [row[key] for row in first]
    assert {row["more"] for row in others[0][0]} == {"1"}


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet"])
def test_rows_are_written_to_a_file_of_any_format(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    frame = FRAME.iloc[:9].assign(note="=1+1")
    frame.to_csv(tmp_path / "new.csv", index=False)
    rows, _ = predicted(capsys, trained, tmp_path / "new.csv")
    assert predicted(capsys, trained, tmp_path / "new.csv", "--out", tmp_path / name)[0] != rows
    path = tmp_path / name
    read = pandas.read_parquet(path) if name.endswith("parquet") else pandas.read_csv(path, sep=None, engine="python")
    assert list(read.columns) == list(rows[0])
    assert read["class"].tolist() == [row["class"] for row in rows]
    np.testing.assert_allclose(read["probability_sick"], [float(row["probability_sick"]) for row in rows], rtol=1e-6)
    assert {row["note"] for row in rows} == {"'=1+1"}, "a spreadsheet does not execute it"


def test_unseen_categories_are_reported_in_one_note(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = FRAME.iloc[:6].assign(ward=["moon", "north", "mars", "moon", "NA", "south"])
    new.to_csv(tmp_path / "new.csv", index=False)
    rows, said = predicted(capsys, trained, tmp_path / "new.csv")
    assert len(rows) == 6
    assert said == (
        "Some categories were not in the training data and are treated as none of them: 'mars' in column 'ward' "
        "(1 row), 'moon' in column 'ward' (2 rows).\n"
    )
    encoded = load(trained).encode(new)
    ward = [1 + load(trained).spec.columns[0].indicator, 2 + load(trained).spec.columns[0].indicator]
    assert encoded[:, ward].tolist() == [[0, 0], [1, 0], [0, 0], [0, 0], [0, 0], [0, 1]]


@pytest.mark.parametrize("trained_on", ["whole.csv", "floats.csv", "t.parquet"])
def test_whole_numbers_are_the_same_categories_in_every_file(
    trained_on: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = pandas.Series([10, 11, 12] * 40)
    frame = pandas.DataFrame({"code": codes, "label": codes % 2, "domain": np.repeat(["A", "B", "C"], 40)})
    frame.to_csv(tmp_path / "whole.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.assign(code=codes.where(codes.index != 7)).to_csv(tmp_path / "floats.csv", index=False)
    assert "\n11.0,1,A\n" in (tmp_path / "floats.csv").read_text()
    train = ["train", "--data", str(tmp_path / trained_on), "--categories", "code", "--target", "C", *SHORT]
    assert main([*train, "--algorithm", "erm", "--out", str(tmp_path / "run")]) == 0
    answers = []
    for name in ("whole.csv", "floats.csv", "t.parquet"):
        rows, said = predicted(capsys, tmp_path / "run", tmp_path / name)
        assert said == "", name
        answers.append([row["probability_1"] for row in rows if row["code"]])
    del answers[0][7], answers[2][7]
    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) > 1


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (FRAME.drop(columns="lab"), "The feature 'lab' is missing in {path}; its columns are: id, age, ward, hospital"),
        (
            FRAME.assign(lab=["1"] * 5 + ["high"] + ["2"] * 114),
            "'high' in row 7 of {path}, column 'lab' is not a number",
        ),
        (
            FRAME.assign(lab=["high"] * 120),
            "'high' in row 2 of {path}, column 'lab' is not a number; give numbers as in",
        ),
        (
            FRAME.assign(age=["1,5"] * 120),
            "'1,5' in row 2 of {path}, column 'age' is not a number with a decimal point",
        ),
        (FRAME.assign(age=[np.inf] * 120), "The number in row 2 of {path}, column 'age' is infinite or too large"),
        (FRAME.iloc[:0], "The table {path} has no rows"),
    ],
)
def test_a_table_that_does_not_fit_gives_one_sentence(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: pandas.DataFrame, sentence: str
) -> None:
    path = tmp_path / "new.csv"
    changed.to_csv(path, index=False)
    assert main(["predict", str(trained), str(path), "--device", "cpu", "--out", str(tmp_path / "out.csv")]) == 2
    said = capsys.readouterr()
    assert sentence.format(path=path) in said.err
    assert (len(said.err.strip().splitlines()), said.out) == (1, "")
    assert not (tmp_path / "out.csv").exists()


def test_wrong_combinations_of_files_and_options_are_refused(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    FRAME.to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "link.csv").symlink_to("a.csv")
    before = (tmp_path / "a.csv").read_bytes()
    for arguments, sentence in (
        (["a.csv", "b.csv"], "predict each table, the images and the arrays with a command of their own"),
        (["a.csv", "--out", "x.txt"], "--out must name a .csv, .tsv or .parquet file, but is x.txt."),
        (
            ["a.csv", "--out", "a.csv"],
            "--out names a.csv, which is the table to predict; write the rows to another file.",
        ),
        (["a.csv", "--out", f"{tmp_path}/link.csv"], "link.csv, which is the table to predict"),
        (["a.csv", "--vectors", "v.npy"], "v.npy cannot be read: No such file"),
    ):
        assert main(["predict", str(trained), *arguments, "--device", "cpu"]) == 2
        assert sentence in capsys.readouterr().err
    assert (tmp_path / "a.csv").read_bytes() == before


def test_a_column_named_like_an_answer_is_kept(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FRAME.iloc[:3].rename(columns={"diagnosis": "class"}).to_csv(tmp_path / "new.csv", index=False)
    rows, _ = predicted(capsys, trained, tmp_path / "new.csv")
    assert [row["class"] for row in rows] == FRAME["diagnosis"].tolist()[:3]
    assert {row["predicted_class"] for row in rows} <= {"healthy", "sick"}


def test_a_data_frame_without_names_of_training_is_refused(trained: Path) -> None:
    with pytest.raises(MessiError, match=r"The feature 'ward' is missing in the data frame;"):
        load(trained).predict(FRAME.drop(columns="ward"))
    with pytest.raises(MessiError, match=r"Column 'ward' has categories; give rows with the same named columns"):
        load(trained).predict(torch.zeros(2, 3))


def test_a_table_is_evaluated_with_the_columns_and_kinds_of_training(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(trained), "--device", "cpu", "--format", "csv"]) == 0
    own = capsys.readouterr().out
    FRAME.to_parquet(tmp_path / "moved.parquet")
    command = ["evaluate", str(trained), "--device", "cpu", "--format", "csv", "--data"]
    assert main([*command, str(tmp_path / "moved.parquet"), *OPTIONS]) == 0
    assert capsys.readouterr().out == own
    more = patients(30).assign(hospital="Z", ward="moon", extra=[f"x{i}" for i in range(30)])
    pandas.concat([FRAME, more]).to_csv(tmp_path / "more.csv", index=False)
    assert main([*command, str(tmp_path / "more.csv"), "--label", "diagnosis", "--domain", "hospital"]) == 0
    said = capsys.readouterr()
    assert "The run has seen 80 of these 150 examples: 64 as train, 16 as source_val." in said.err
    rows = {(row["role"], row["domain"]): row for row in csv.DictReader(io.StringIO(said.out))}
    kept = {(row["role"], row["domain"]): row for row in csv.DictReader(io.StringIO(own))}
    assert rows["target", "C"] == kept["target", "C"]
    assert rows["target", "Z"]["n"] == "30"


def test_vectors_next_to_a_table_are_predicted_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    FRAME[["diagnosis", "hospital"]].to_csv("t.csv", index=False)
    vectors = RANDOM.normal(size=(120, 4)).astype(np.float32)
    vectors[FRAME["diagnosis"] == "sick"] += 2
    np.save("v.npy", vectors)
    train = ["train", "--data", "t.csv", "--vectors", "v.npy", *OPTIONS[:4], "--target", "C", *SHORT, "--out", "run"]
    assert main([*train]) == 0
    rows, _ = predicted(capsys, "run", "t.csv", "--vectors", "v.npy")
    answers = load("run").predict(torch.from_numpy(vectors))
    assert [row["class"] for row in rows] == answers.labels
    FRAME.assign(vectors=vectors.tolist()).to_parquet("lists.parquet")
    lists, _ = predicted(capsys, "run", "lists.parquet")
    assert [row["probability"] for row in lists] == [row["probability"] for row in rows]
    assert main(["predict", "run", "t.csv"]) == 2
    assert "takes vectors next to the table t.csv; name their .npy file with --vectors" in capsys.readouterr().err
    assert main(["evaluate", "run", "--device", "cpu", "--data", "t.csv", "--vectors", "v.npy", *OPTIONS[:4]]) == 0


def test_data_show_lists_the_columns_and_verify_finds_equal_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pandas.concat([FRAME, FRAME.iloc[:1].assign(hospital="B")]).assign(fixed=1)
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert main(["data", "show", str(tmp_path / "t.csv"), *OPTIONS]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["ward", "categories", "0", "2:", "north,", "south"] in lines
    assert ["fixed", "numbers", "0", "1", "to", "1"] in lines
    assert main(["data", "verify", str(tmp_path / "t.csv"), *OPTIONS]) == 1
    said = capsys.readouterr().out
    assert "duplicate 2 examples are equal (number 1, 121), with domains A, B" in said
    assert "constant  column 'fixed' has the same value in all rows" in said
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    assert main(["data", "verify", str(tmp_path / "t.csv"), *OPTIONS]) == 0


def test_a_comparison_takes_the_columns_as_settings_of_its_data(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    data = find_data_set(f"{tmp_path / 't.csv'} label=diagnosis domain=hospital ignore=id,ward scaling=none")
    assert data.to_dict() == {
        "name": "feature_table", "path": str(tmp_path / "t.csv"), "label_column": "diagnosis",
        "domain_column": "hospital", "split_column": "split", "features": [], "ignore": ["id", "ward"],
        "categories": [], "vectors": None, "scaling": "none",
    }  # fmt: skip
    with pytest.raises(MessiError, match=r"no setting of the data set feature_table named 'labl'"):
        find_data_set(f"{tmp_path / 't.csv'} labl=diagnosis")
