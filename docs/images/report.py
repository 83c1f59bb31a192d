"""Take the picture of a report: ``.venv/bin/python docs/images/report.py`` (needs chromium)."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 1280, 776
BROWSER_BAR = 143
"""Pixels that headless Chromium takes off the height of its window."""


def main() -> None:
    """Write report.png: the first screen of the report of the sample."""
    options = webdriver.ChromeOptions()
    size = f"--window-size={WIDTH},{HEIGHT + BROWSER_BAR}"
    for word in ("--headless=new", "--no-sandbox", "--hide-scrollbars", size):
        options.add_argument(word)
    options.binary_location = "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        sample = "traces/samples/postfix-dovecot"
        command = [sys.executable, "-m", "spoolscope.cli.main", "report", sample, "-o", str(page)]
        subprocess.run([*command, "-q"], cwd=ROOT, check=True)
        service = webdriver.ChromeService("/usr/bin/chromedriver")
        browser = webdriver.Chrome(options=options, service=service)
        browser.get(page.as_uri())
        time.sleep(3)  # the figures are drawn by then
        browser.save_screenshot(str(Path(__file__).with_suffix(".png")))
        browser.quit()


if __name__ == "__main__":
    main()
