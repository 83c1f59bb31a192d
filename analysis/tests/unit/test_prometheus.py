"""A real Prometheus scrapes the exporter, and evaluates the rules and the dashboard's queries.

Each alert has roll-ups that must fire it and others, just below its threshold, that must not. Their
history is made minute by minute by the exporter's own sums and stored in Prometheus in advance, as
its rates need a quarter of an hour.
"""

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollup_scenes import DEV, MS, Calls, Commits, Minute

from spoolscope.exporter.follower import Follower
from spoolscope.exporter.handing_on import Running, Ways
from spoolscope.exporter.minute_sums import MinuteSums
from spoolscope.exporter.rendering import OPENMETRICS, PLAIN, rendered
from spoolscope.exporter.scraped import Page, serving

EXPORTER = Path(__file__).parents[2] / "python/spoolscope/exporter"
RULES, DASHBOARD = EXPORTER / "rules.yml", json.loads((EXPORTER / "dashboard.json").read_text())
HISTORY = 17
"""Minutes of history for rules with ranges of 15 minutes; the others have 5, and need 7."""
WAIT_S = 20
USUAL = (
    Calls(600, 2 * MS, waits={"journal_commit": MS, "flush": MS // 2}),
    Calls(6000, 15_000, "openat", waits={"lookup_io": 4_000}),
    Calls(60, 20_000, "unlink", "imap", {"dir_lock": 15_000}, failed=1),
)


def syncs(ns: int, n: int = 600) -> Minute:
    return Minute((Calls(n, ns),))


def waits(cause: str, n: int, ns: int, syscall: str = "openat") -> Minute:
    return Minute((Calls(n, ns + 1000, syscall, waits={cause: ns}), *USUAL))


def seen(**columns: int) -> Minute:
    return Minute(USUAL, columns=columns)


# A minute that fires each alert, if it happens every minute, and one that does not.
SCENES: dict[str, tuple[Minute, Minute]] = {
    "SpoolscopeCommitStorm": (
        Minute(commits=(Commits(700), Commits(600, comm="imap"))),
        Minute(commits=(Commits(700), Commits(450, comm="imap"))),
    ),
    "SpoolscopeSlowSync": (syncs(700 * MS), syncs(700 * MS, 5)),
    "SpoolscopeCostlyLookups": (
        waits("lookup_io", 6000, 2 * MS),
        waits("lookup_io", 60, 2 * MS),
    ),
    "SpoolscopeLockHeld": (
        waits("file_lock", 6, 60_000 * MS, "fcntl"),
        waits("file_lock", 4, 60_000 * MS, "fcntl"),
    ),
    "SpoolscopeLockWaits": (waits("inode_lock", 60, 3000 * MS), waits("inode_lock", 60, 500 * MS)),
    "SpoolscopeThrottled": (
        waits("dirty_throttle", 20, 700 * MS),
        waits("io_throttle", 20, 500 * MS),
    ),
    "SpoolscopeCallsLost": (seen(lost=1), seen(lost=0)),
    "SpoolscopeRecorderGaps": (seen(covered_ns=50_000 * MS), seen(covered_ns=58_000 * MS)),
    "SpoolscopeRecorderBusy": (seen(recorder_ns=7_000 * MS), seen(recorder_ns=5_000 * MS)),
    "SpoolscopeClockSet": (seen(clock_step_ns=-1000 * MS), seen(clock_step_ns=20 * MS)),
}  # fmt: skip


def down(_sums: MinuteSums, minute: int) -> bool:
    return minute < HISTORY - 7


def refused(sums: MinuteSums, minute: int) -> bool:
    sums.numbers[next(m for m in sums.numbers if m.base == "rollup_flushes")][("refused",)] = minute
    return True


# Alerts that are not of the content of minutes: what happens to the exporter in each minute; it
# returns whether the minute's roll-up came. The other scene is the usual minute.
OTHER_SCENES: dict[str, Callable[[MinuteSums, int], bool]] = {
    "SpoolscopeRecorderDown": down,
    "SpoolscopeRollupsRefused": refused,
}


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


ALERTS = {rule["alert"]: rule for group in groups() for rule in group["rules"] if "alert" in rule}
RECORDS = [rule for group in groups() for rule in group["rules"] if "record" in rule]


@dataclass(frozen=True)
class Prometheus:
    url: str
    now_s: int

    def get(self, path: str, **asked: str | int) -> Any:
        query = urllib.parse.urlencode(asked)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=WAIT_S) as answer:
            said = json.load(answer)
        assert said["status"] == "success"
        return said["data"]

    def query(self, expression: str, at_s: int | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression, time=at_s or self.now_s)[
            "result"
        ]
        return found


def history(
    name: str, minute: Minute, now_s: int, comes: Callable[[MinuteSums, int], bool] | None = None
) -> Iterator[str]:
    """Yield the samples of an exporter of such minutes, one scrape at the end of each."""
    sums = MinuteSums(20)
    rule = ALERTS.get(name.partition("/")[0])
    length = 7 if rule and "15m" not in rule["expr"] and comes is None else HISTORY
    labels = f'{{job="spoolscope",instance="{name}"'
    for at in range(HISTORY - length, HISTORY):
        start_s = now_s - 60 * (HISTORY - at)
        if comes is None or comes(sums, at):
            sums.add(minute.tables(start_s, at))
        for line in rendered(sums, OPENMETRICS, (start_s + 60) * 10**9).splitlines():
            if line[0] != "#":
                head, value, when = line.rsplit(" ", 2)
                metric, _, own = head.partition("{")
                if metric.endswith("_bucket") and value == "0":
                    continue  # nine of ten lines; a quantile needs none of them
                yield f"{metric}{labels}{f',{own}' if own else '}'} {value} {when}\n"


def write_histories(file: Path, now_s: int) -> None:
    def moved(sums: MinuteSums, at: int) -> bool:
        """Let the spool have another device for the first minutes."""
        before = at < HISTORY - 7
        if before:
            sums.add(Minute(USUAL, dev=DEV + 1).tables(now_s - 60 * (HISTORY - at), at))
        return not before

    with file.open("w") as out:
        for name, (fires, does_not) in SCENES.items():
            out.writelines(history(f"{name}/fires", fires, now_s))
            out.writelines(history(f"{name}/not", does_not, now_s))
        for name, comes in OTHER_SCENES.items():
            out.writelines(history(f"{name}/fires", Minute(USUAL), now_s, comes))
        out.writelines(history("usual", Minute(USUAL, (Commits(60),)), now_s))
        out.writelines(history("moved", Minute(USUAL), now_s, moved))
        out.write("# EOF\n")


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory, require: Callable[..., None]
) -> Iterator[Prometheus]:
    """Start Prometheus with the rules, the histories, and an exporter that it scrapes."""
    if not shutil.which("prometheus"):
        require("prometheus", "no prometheus on PATH or in build/unpacked: run sudo .ci/setup test")
    place = tmp_path_factory.mktemp("prometheus")
    now_s = int(time.time()) // 60 * 60
    write_histories(place / "history", now_s)
    imported = ["promtool", "tsdb", "create-blocks-from", "openmetrics"]
    subprocess.run([*imported, place / "history", place / "data"], check=True, capture_output=True)
    for seq in range(3):
        Minute(USUAL).write(place / "rollups", now_s - 120 + 60 * seq, seq)
    page = Page()
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = f"127.0.0.1:{free.getsockname()[1]}"
    with serving("127.0.0.1:0", page) as port:
        Running(Follower(place / "rollups", None, pytest.fail), 20, Ways(page), pytest.fail)
        scrape = {"job_name": "live", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
        config["rule_files"] = [str(RULES)]
        (place / "prometheus.yml").write_text(json.dumps(config))
        with (place / "log").open("w") as log:
            process = subprocess.Popen(
                ["prometheus", f"--config.file={place}/prometheus.yml",
                 f"--storage.tsdb.path={place}/data", f"--web.listen-address={own}"],
                stderr=log,
            )  # fmt: skip
        try:
            yield ready(Prometheus(f"http://{own}", now_s), process, place / "log")
        finally:
            process.terminate()
            process.wait(WAIT_S)


def ready(started: Prometheus, process: subprocess.Popen[bytes], log: Path) -> Prometheus:
    """Return it as soon as it has scraped the exporter."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if started.query('up{job="live"} == 1', int(time.time())):
                return started
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def fired(prometheus: Prometheus, alert: str) -> set[str]:
    found = prometheus.query(ALERTS[alert]["expr"])
    return {one["metric"]["instance"] for one in found}


def test_every_alert_has_roll_ups_that_fire_it() -> None:
    assert SCENES.keys() | OTHER_SCENES.keys() == ALERTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_when_it_must_and_only_then(prometheus: Prometheus, alert: str) -> None:
    found = fired(prometheus, alert)
    assert f"{alert}/fires" in found
    assert found & {f"{alert}/not", "usual"} == set()


@pytest.mark.parametrize("alert", ["SpoolscopeRecorderDown", "SpoolscopeRecorderGaps"])
def test_a_device_that_is_recorded_no_longer_fires_no_alert(
    prometheus: Prometheus, alert: str
) -> None:
    covered = prometheus.query('spoolscope_covered_time_seconds_total{instance="moved"}')
    assert {one["metric"]["dev"] for one in covered} == {"8:1", "8:2"}
    found = prometheus.query(ALERTS[alert]["expr"])
    devs = {one["metric"]["dev"] for one in found if one["metric"]["instance"] == "moved"}
    assert "8:2" not in devs


def test_the_recorder_is_down_if_no_minute_ever_came(prometheus: Prometheus) -> None:
    expression = ALERTS["SpoolscopeRecorderDown"]["expr"]
    nothing = expression.replace("last_minute", "of_no_minute")
    assert "usual" in {one["metric"]["instance"] for one in prometheus.query(nothing)}


def test_no_alert_fires_on_the_live_exporter(
    prometheus: Prometheus,
) -> None:
    now_s = int(time.time())
    for rule in ALERTS.values():
        found = prometheus.query(rule["expr"], now_s)
        assert [one for one in found if one["metric"].get("job") == "live"] == []


def test_scraped_numbers_are_those_of_the_exporter(prometheus: Prometheus) -> None:
    now_s = int(time.time())
    (lasted,) = prometheus.query('spoolscope_last_minute_timestamp_seconds{job="live"}', now_s)
    assert int(lasted["value"][1]) == prometheus.now_s + 60
    types = prometheus.get("metadata")
    assert types["spoolscope_call_duration_seconds"][0]["type"] == "histogram"
    # That of OpenMetrics has the name without suffix.
    (counter,) = types.get("spoolscope_commits") or types["spoolscope_commits_total"]
    assert counter["type"] == "counter"


def test_rules_are_loaded_and_recorded_series_have_values(prometheus: Prometheus) -> None:
    loaded = prometheus.get("rules")["groups"]
    assert sum(len(group["rules"]) for group in loaded) == len(ALERTS) + len(RECORDS)
    names = {rule["record"]: f"({rule['expr']})" for rule in RECORDS}
    for rule in RECORDS:
        expression = rule["expr"]
        for name, inner in names.items():
            expression = expression.replace(name, inner)
        found = {one["metric"]["instance"]: one for one in prometheus.query(expression)}
        assert {"usual", "SpoolscopeThrottled/fires"} <= found.keys()
    (commits,) = (one for one in prometheus.query(names["instance_dev:spoolscope_commits:rate5m"])
                  if one["metric"]["instance"] == "usual")  # fmt: skip
    assert float(commits["value"][1]) == pytest.approx(1)


PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}


@pytest.mark.parametrize("title", PANELS)
def test_each_query_of_a_panel_returns_data(prometheus: Prometheus, title: str) -> None:
    for target in PANELS[title]["targets"]:
        expression = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "15m")
        expression = expression.replace("$instance", "usual|.*/fires").replace("$dev", ".*")
        assert "$" not in expression
        found = prometheus.query(expression)
        assert found, expression
        legend = re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))
        assert all(name in found[0]["metric"] for name in legend), target["legendFormat"]


def test_variables_of_the_dashboard_have_values(prometheus: Prometheus) -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    for name, least in (("instance", 3), ("dev", 1)):
        query = variables[name]["query"].replace("$instance", ".*")
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
        found = {one["metric"][label] for one in prometheus.query(selector)}
        assert len(found) >= least


def test_dashboard_has_only_what_grafana_knows() -> None:
    """Grafana's own models of a dashboard keep all of it: a key that they lack would be gone."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    kept = json.loads(json.dumps(Dashboard.from_json(DASHBOARD), cls=JSONEncoder))
    assert lost(DASHBOARD, kept) == []
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert sorted(set(ids)) == sorted(ids)


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """Return the places of what is given and not kept."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [one for name, value in given.items()
                for one in lost(value, kept.get(name), f"{path}/{name}")]  # fmt: skip
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [one for at, value in enumerate(given)
                for one in lost(value, kept[at], f"{path}/{at}")]  # fmt: skip
    return [] if given == kept else [path]


def test_promtool_finds_nothing_to_say(require: Callable[..., None]) -> None:
    if not shutil.which("promtool"):
        require("promtool", "no promtool on PATH or in build/unpacked: run sudo .ci/setup test")
    checked = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"SUCCESS: {len(ALERTS) + len(RECORDS)} rules found" in checked.stdout
    sums = MinuteSums(20)
    sums.add(Minute(USUAL, (Commits(3),)).tables(0, 0))
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=rendered(sums, PLAIN),
        capture_output=True,
        text=True,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
