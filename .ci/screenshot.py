"""Make docs/assets/report.png: three parts of the page that ``messi demo`` writes, side by side.

python .ci/screenshot.py runs/demo/report.html
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 760, 860
PARTS = ("h1", "#curves h2", "text=Examples by expert")
OUT = Path(__file__).parents[1] / "docs" / "assets" / "report.png"

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(Path(sys.argv[1]).resolve().as_uri())
    shots = []
    for part in PARTS:
        page.locator(part).first.evaluate("part => scrollTo(0, part.getBoundingClientRect().top + scrollY - 60)")
        page.wait_for_timeout(300)
        shots.append(Image.open(io.BytesIO(page.screenshot())))
    browser.close()

picture = Image.new("RGB", (len(shots) * (WIDTH + 20) - 20, HEIGHT), "#c9ccd6")
for number, shot in enumerate(shots):
    picture.paste(shot, (number * (WIDTH + 20), 0))
picture.resize((1600, round(1600 * picture.height / picture.width)), Image.Resampling.LANCZOS).quantize(128).save(OUT)
