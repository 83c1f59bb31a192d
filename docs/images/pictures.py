"""Take pictures of the README: ``.venv/bin/python docs/images/pictures.py`` (needs chromium)."""

import base64
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SAMPLE = "traces/samples/postfix-dovecot"
COMPARISON = ROOT / "notebooks/rendered/04_maildir_io_2004.html"
BROWSER_BAR = 143
"""Pixels that headless Chromium takes off the height of its window."""
_DRAWN = re.compile(r'src="data:image/svg\+xml;base64,([^"]+)"')
_SIZE = re.compile(r'<svg[^>]* width="(\d+)[^>]* height="(\d+)')


def main() -> None:
    """Write report.png and then-now.png: the report of a sample, the ratios of a notebook."""
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        command = [sys.executable, "-m", "spoolscope.cli.main", "report", SAMPLE, "-o", str(page)]
        subprocess.run([*command, "-q"], cwd=ROOT, check=True)
        take(page, HERE / "report.png", 1280, 776)
        figure = Path(scratch) / "figure.svg"
        figure.write_text(first_figure(COMPARISON.read_text()))
        width, height = map(int, _SIZE.findall(figure.read_text())[0])
        take(figure, HERE / "then-now.png", width, height)


def first_figure(notebook: str) -> str:
    """Return the first figure of a rendered notebook."""
    return base64.b64decode(_DRAWN.findall(notebook)[0]).decode()


def take(page: Path, picture: Path, width: int, height: int) -> None:
    """Write a picture of the first screen of a page, which has that size."""
    options = webdriver.ChromeOptions()
    size = f"--window-size={width},{height + BROWSER_BAR}"
    for word in ("--headless=new", "--no-sandbox", "--hide-scrollbars", size):
        options.add_argument(word)
    options.binary_location = "/usr/bin/chromium"
    browser = webdriver.Chrome(
        options=options, service=webdriver.ChromeService("/usr/bin/chromedriver")
    )
    browser.get(page.as_uri())
    time.sleep(3)  # the figures are drawn by then
    browser.save_screenshot(str(picture))
    browser.quit()


if __name__ == "__main__":
    main()
