"""Write the six sets of features of the confirmation as .npz files, from the public files named in SOURCES.

python prepare.py RAW OUT, with every file of SOURCES in the folder RAW; requires pip install rdata scikit-learn
"""

import html
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import rdata
from sklearn.feature_extraction.text import CountVectorizer

SOURCES = {
    "cran/ElemStatLearn": ("data/zip.train.RData", "data/zip.test.RData", "data/phoneme.RData"),
    "jadsoncastro/UnifiedView": ("data/semeion.data",),
    "sundios/Classification": ("mfeat-pix.txt",),
    "iandurbach/ml-for-ecology": ("data/forest.RData",),
    "cran/metamisc": ("data/impact.rda",),
    "bhumeshchopda/WISDM_Challenge": ("WISDM_ar_v1.1_transformed.arff",),
    "C0D3-BR3AK3R/HadoopFinalNCU-Project": tuple(
        f"data/Youtube0{place}-{video}.csv"
        for place, video in enumerate(("Psy", "KatyPerry", "LMFAO", "Eminem", "Shakira"), 1)
    ),
}
"""Public repositories and their files."""
Examples = tuple[np.ndarray, pd.Series, pd.Series]
"""Inputs, labels and domains."""


def digit_collections(raw: Path) -> Examples:
    """Return three collections of digits of 16 x 16 pixels from 0 (paper) to 1 (ink)."""
    usps = np.concatenate([_read_r(raw / f"zip.{part}.RData") for part in ("train", "test")])
    semeion = np.loadtxt(raw / "semeion.data", delimiter=",")
    features = np.loadtxt(raw / "mfeat-pix.txt").reshape(2000, 16, 15) / 6
    parts = {  # Semeion counts digits from 1; Multiple Features has 15 columns and 200 images of each digit, in order
        "usps": ((usps[:, 1:] + 1) / 2, usps[:, 0]),
        "semeion": (semeion[:, :256], semeion[:, 256] - 1),
        "multiple_features": (np.pad(features, ((0, 0), (0, 0), (0, 1))).reshape(2000, 256), np.arange(2000) // 200),
    }
    labels = pd.Series(np.concatenate([labels for _, labels in parts.values()]).astype(int))
    domains = pd.Series(np.repeat(list(parts), [len(labels) for _, labels in parts.values()]))
    return np.concatenate([inputs for inputs, _ in parts.values()]), labels, domains


def forest_cover(raw: Path) -> Examples:
    """Return the three kinds of forest that grow in each of three areas, without soils that do not occur there."""
    table = _read_r(raw / "forest.RData")
    areas = table[[f"Wilderness_Area{number}" for number in range(1, 5)]].to_numpy().argmax(axis=1) + 1
    kept = table["Cover_Type"].isin([1, 2, 7]).to_numpy() & (areas < 4)
    features = table[kept].drop(columns=["Id", *table.filter(like="Wilderness_Area").columns])
    kinds = features.pop("Cover_Type").map({1: "spruce_fir", 2: "lodgepole_pine", 7: "krummholz"})
    varying = features.loc[:, features.nunique() > 1]
    return varying.to_numpy(float), kinds, pd.Series(areas[kept]).map("area_{}".format)


def impact_tbi(raw: Path) -> Examples:
    """Return the eight largest studies of brain injury; the outcome is death within six months."""
    table = _read_r(raw / "impact.rda")
    table = table[table["name"].isin(table["name"].value_counts().index[:8])]
    inputs = pd.get_dummies(table.drop(columns=["name", "type", "mort"]), columns=["motor_score", "pupil", "ct"])
    return inputs.to_numpy(float), table["mort"].map({0: "alive", 1: "dead"}), table["name"].astype(str)


def timit_phonemes(raw: Path) -> Examples:
    """Return log-periodograms of five phonemes, by the dialect region in the name of the speaker."""
    table = _read_r(raw / "phoneme.RData")
    return table.filter(like="x.").to_numpy(float), table["g"], table["speaker"].astype(str).str.split(".").str[1]


def wisdm(raw: Path) -> Examples:
    """Return activities by groups of six users, without a constant column and one that is equal to another."""
    lines = (raw / "WISDM_ar_v1.1_transformed.arff").read_text().partition("@data")[2].split()
    table = pd.DataFrame([line.split(",") for line in lines])
    inputs = table.iloc[:, 2:45].replace("?", np.nan).astype(float)
    inputs = inputs.loc[:, inputs.nunique() > 1].T.drop_duplicates().T
    users = table[1].str.strip('"').astype(int)
    first = (users - 1) // 6 * 6 + 1
    return inputs.to_numpy(), table[45], "users" + first.astype(str) + "-" + (first + 5).astype(str)


def youtube_spam(raw: Path) -> Examples:
    """Return how often comments contain the words that occur in at least five; repeated comment numbers are dropped."""
    files = [Path(name) for name in SOURCES["C0D3-BR3AK3R/HadoopFinalNCU-Project"]]
    tables = [pd.read_csv(raw / file.name).assign(video=file.stem.partition("-")[2]) for file in files]
    table = pd.concat(tables).drop_duplicates("COMMENT_ID")
    comments = table["CONTENT"].map(html.unescape).str.replace("\u2019", "'")
    counts = CountVectorizer(token_pattern=r"[a-z]+(?:'[a-z]+)?", min_df=5).fit_transform(comments)  # noqa: S106
    return counts.toarray(), table["label"].map({0: "comment", 1: "spam"}), table["video"]


def _read_r(file: Path) -> object:
    (content,) = rdata.read_rda(file).values()
    return content


if __name__ == "__main__":
    source, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for prepare in (digit_collections, forest_cover, impact_tbi, timit_phonemes, wisdm, youtube_spam):
        inputs, labels, domains = prepare(source)
        if not (pd.crosstab(domains.to_numpy(), labels.to_numpy()) > 0).all(axis=None):
            sys.exit(f"{prepare.__name__}: every domain must have every class.")
        arrays = {"labels": labels.to_numpy(str), "domains": domains.to_numpy(str)}
        np.savez_compressed(out / f"{prepare.__name__}.npz", inputs=inputs.astype(np.float32), **arrays)
        print(prepare.__name__, *inputs.shape, labels.nunique(), domains.nunique())  # noqa: T201
