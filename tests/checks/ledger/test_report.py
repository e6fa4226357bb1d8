import base64
import hashlib
import json
import os
import random
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.drawing.page import KINDS, MAX_EVIDENCE, SHORT, breakable, write_page
from kafka_eos_checks.drawing.sequence_diagram import Step, from_story
from kafka_eos_checks.drawing.svg import NAMESPACE, visible
from kafka_eos_checks.kit import paths
from kafka_eos_checks.kit.verdict import Verdict, verdict_from_json, write_verdicts
from kafka_eos_checks.ledger.report import load_verdicts, render, report_of, sources, write_report

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
ALLOWED_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "footer"),
    *("h1", "h2", "p", "a", "b", "span", "ul", "li", "dl", "dt", "dd", "div", "pre", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "wbr", "figure", "figcaption", "code"),
    *("svg", "g", "line", "rect", "path", "text"),
}
VOID_TAGS = {"meta", "wbr", "input"}
HOLDS = Verdict(check="model", name="PartitionLog", expected="holds", found="holds", ok=True, claims=("C03",))
FAILS = Verdict(check="graph", name="PartitionLog", expected="0 differences", found="3 differences", ok=False)


class Page(HTMLParser):
    """The content of the page, and whether its elements are nested correctly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.words: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.ids: list[str] = []
        self.opened_details: list[bool] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag == "details":
            self.opened_details.append(("open", None) in attrs)
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.setdefault(self.open[-1] if self.open else "", []).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(part for parts in self.words.values() for part in parts).split())


def page_of(*verdicts: Verdict) -> Page:
    """The page without the findings, which are on every page."""
    return Page(render(replace(report_of(verdicts, NOW), findings=())))


def assert_inert(page: Page) -> None:
    assert page.tags <= ALLOWED_TAGS, page.tags - ALLOWED_TAGS
    for name, value in page.attributes:
        assert not name.startswith("on"), name
        assert name not in {"src", "srcset", "style", "action", "formaction", "data", "xlink:href"}, name
        if name == "href":
            assert value is not None
            assert value.startswith("#"), value


def test_all_as_expected_is_the_headline() -> None:
    assert page_of(HOLDS, replace(HOLDS, name="Delivery")).words["h1"] == ["2 verdicts, all as expected"]
    assert page_of(HOLDS).words["h1"] == ["1 verdict, as expected"]


def test_a_failing_verdict_is_in_the_headline_by_name_and_its_evidence_is_not_checked() -> None:
    long = "fine\n" * (SHORT + 1)
    page = page_of(HOLDS, replace(FAILS, evidence="the shortest path"), replace(HOLDS, name="x", evidence=long))
    assert page.words["h1"] == ["PartitionLog: 3 differences (1 of 3 verdicts differs)"]
    assert page.text.index("graph PartitionLog") < page.text.index("date")
    assert sorted(page.opened_details) == [False, True]


def test_every_verdict_is_on_the_page_with_what_it_found() -> None:
    kinds = [*KINDS, "kind that came later"]
    verdicts = [
        Verdict(check=kind, name=f"name {index}", expected=f"want {index}", found=f"got {index}", ok=index % 3 > 0)
        for index, kind in enumerate(kinds * 2)
    ]
    page = page_of(*verdicts)
    names = [name.strip() for name in page.words["th"]]
    cells = page.words["td"]
    for verdict in verdicts:
        assert verdict.name in names
        assert verdict.expected in cells
        assert verdict.found in cells
    assert {f"v{index}" for index in range(len(verdicts))} <= set(page.ids)


def test_the_same_name_in_two_files_is_shown_twice() -> None:
    report = report_of([HOLDS, replace(HOLDS, ok=False, found="violates NoGap")], NOW)
    assert report.headline == "PartitionLog: violates NoGap (1 of 2 verdicts differs)"
    assert render(report).count('class="mark"><span role="img"') == 2


def test_links_lead_somewhere_and_ids_are_unique() -> None:
    page = page_of(HOLDS, FAILS, replace(HOLDS, name="b", claims=("C01", "C77")))
    assert len(page.ids) == len(set(page.ids))
    targets = {value[1:] for name, value in page.attributes if name == "href" and value}
    assert targets
    assert targets <= set(page.ids)


def test_a_claim_without_a_verdict_is_not_checked() -> None:
    report = report_of([HOLDS], NOW)
    standings = {entry.claim.id: entry.standing for entry in report.entries}
    assert (standings["C03"], standings["C04"]) == ("settled", "not checked here")
    page = Page(render(report))
    assert page.words["span"].count("not checked here") == len(report.entries) - 1
    assert page.words["span"].count("none yet") == len(report.entries) - 1


def test_a_claim_names_the_section_of_each_document_that_makes_it() -> None:
    assert "chapter 8, section “Broker failure”" in " ".join(page_of(HOLDS).words["span"])


def test_a_claim_with_a_verdict_that_differs_is_not_settled() -> None:
    report = report_of([replace(HOLDS, claims=("C03", "C04")), replace(FAILS, claims=("C03",))], NOW)
    assert {entry.claim.id: entry.standing for entry in report.entries}["C03"] == "differs"
    [tally] = [words for words in Page(render(report)).words["span"] if words.startswith("1 settled")]
    assert tally == f"1 settled, 1 differs, {len(report.entries) - 2} not checked here"


def test_a_claim_that_the_ledger_does_not_have_is_shown() -> None:
    page = page_of(replace(HOLDS, claims=("C999",)))
    assert "not in the ledger" in page.words["span"]
    assert "claim-C999" in page.ids


# --- findings ---------------------------------------------------------------------------------------------------------

FOUND = Verdict(
    check="mutant", name="ActsOnLoaded", expected="violates P", found="violates P", ok=True, evidence="the run of TLC"
)
CLIENT = Verdict(check="finding", name="client-keeps-epoch: client", expected="passes", found="passes", ok=True)


def findings_of(*verdicts: Verdict) -> str:
    """The section of the findings."""
    return render(report_of(verdicts, NOW)).partition('<section id="findings">')[2].partition("</section>")[0]


def finding_of(name: str, *verdicts: Verdict) -> str:
    """The text of that section on one finding."""
    return findings_of(*verdicts).partition(f'<tbody id="finding-{name}"')[2].partition("</tbody>")[0]


def test_the_findings_come_first_with_their_evidence_and_the_share_that_is_checked() -> None:
    text = render(report_of([HOLDS], NOW))
    assert text.index('<section id="findings">') < text.index('<section id="s1">')
    assert '<a href="#findings">Findings in Kafka <span>32</span></a>' in text
    recorded = finding_of("aborted-records-delivered", HOLDS)
    assert "on a real broker" in recorded
    assert '<td data-label="checked here" class="standing">checked in part</td>' in recorded
    assert "✓ checked:</span> the audit finds &#39;aborted record delivered&#39;" in recorded
    assert "· not checked here:</span> TLC: AppendedAtOnce violates its property" in recorded
    assert "<code>kafka-eos check models AppendedAtOnce AppendedAtOnceMended</code>" in recorded


def test_a_finding_has_its_run_and_diagram_folded() -> None:
    recorded = finding_of("aborted-records-delivered", HOLDS)
    assert recorded.index("<details>") < recorded.index("<pre>aborted record delivered: ") < recorded.index("<svg")
    in_model = finding_of("decision-lost", FOUND)
    assert "<pre>the run of TLC</pre>" in in_model
    assert '(<a href="#v0">violates P</a>)' in in_model
    assert "<pre>" not in finding_of("decision-lost", HOLDS)


def test_a_finding_whose_evidence_differs_is_open_and_its_verdict_can_be_reached() -> None:
    failing = replace(CLIENT, ok=False, found="fails")
    shown = finding_of("client-keeps-epoch", HOLDS, failing)
    assert "<details open>" in shown
    assert "✗ differs:" in shown
    assert ": expected passes, found fails</li>" in shown
    page = Page(render(report_of([HOLDS, failing], NOW)))
    assert page.text.index("finding client-keeps-epoch: client") < page.text.index("date")
    assert "v0" in page.ids  # a verdict of kind finding is only in its finding's row
    assert page.ids.count("v0") == 1


def test_links_and_ids_are_sound_and_text_is_inert_with_findings_too() -> None:
    page = Page(render(report_of([HOLDS, FOUND, CLIENT, replace(CLIENT, name="nobody: client")], NOW)))
    assert_inert(page)
    assert len(page.ids) == len(set(page.ids))
    assert {value[1:] for name, value in page.attributes if name == "href" and value} <= set(page.ids)
    assert "nobody: client" in page.text  # evidence of a finding that is not listed is a row of its own


@pytest.mark.parametrize(("check", "told"), [("release", True), ("model", False), ("walk", False)])
def test_the_table_of_properties_is_there_if_some_release_was_checked(check: str, told: bool) -> None:
    verdict = Verdict(check=check, name="M", expected="holds", found="holds", ok=True)
    assert bool(report_of([verdict]).properties) is told


def test_report_json_has_the_findings_with_their_evidence() -> None:
    rows = {row["id"]: row for row in report_of([FOUND], NOW).to_json()["findings"]}
    recorded, lost = rows["aborted-records-delivered"], rows["decision-lost"]
    assert (recorded["shown"], recorded["state"]) == ("on a real broker", "checked in part")
    assert [(part["found"], part["ok"]) for part in recorded["evidence"]] == [
        ("found", True),
        (None, None),
        (None, None),
    ]
    assert (lost["evidence"][0]["found"], lost["evidence"][0]["command"]) == (
        "violates P",
        "kafka-eos check models ActsOnLoaded",
    )


def test_a_page_of_some_verdicts_has_no_findings(tmp_path: Path) -> None:
    write_page([HOLDS], tmp_path / "page.html", NOW)
    assert "findings" not in Page((tmp_path / "page.html").read_text(encoding="utf-8")).ids


# --- the matrix, text of any content ----------------------------------------------------------------------------------


def test_the_matrix_has_a_column_for_each_means_with_the_number_of_its_kills() -> None:
    row = Verdict(check="mutant-means", name="one", expected="killed", found="killed", ok=True)
    cells: list[dict[str, int | float | str]] = [
        {"TLC": "NoGap", "proof": "-"},
        {"TLC": "NoGap", "proof": "survives"},
        {"TLC": "<b>", "proof": "retry"},
    ]
    rows = [replace(row, name=str(place), figures=figures) for place, figures in enumerate(cells)]
    text = render(report_of(rows, NOW))
    assert '<th class="means">TLC <b>3</b></th>' in text
    assert '<th class="means">proof <b>1</b></th>' in text
    assert '<td data-label="proof" class="blank">-</td>' in text
    assert '<td data-label="proof" class="missed">survives</td>' in text
    assert '<td data-label="TLC" class="killed">&lt;b&gt;</td>' in text


def test_text_of_any_content_is_inert() -> None:
    seed = 7_041
    print(f"seed {seed}")
    rng = random.Random(seed)
    nasty = [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='alert(1)",
        "</style><script>alert(1)</script>",
        "</pre></details></table><iframe src=//example.org>",
        "{{ 7 * 7 }}{% raw %}",
        "<!-- ", "-->", "]]>", "&lt;script&gt;", "javascript:alert(1)",
        "\x00\x08\u202e\ud800\uffff\U0001f600",
    ]  # fmt: skip
    alphabet = "<>&\"'`=/ \x00\u202e\ud800{}%#-!;a"
    nasty += ["".join(rng.choices(alphabet, k=30)) for _ in range(30)]
    for text in nasty:
        verdict = Verdict(
            check=rng.choice(["model", text]),
            name=text,
            expected=text,
            found=text,
            ok=rng.random() < 0.5,
            figures={text: text, "states": 3, "seed": text, "kafka": text},
            evidence=text,
            claims=(text,),
            diagram=from_story([Step(text, "b", text, note=text)]) if rng.random() < 0.5 else text,
        )
        page = page_of(verdict)
        assert_inert(page)
        assert page.words["pre"] == [visible(text).strip("\n")]


def test_a_diagram_that_is_more_than_a_picture_is_left_out_and_the_page_says_so() -> None:
    diagram = f'<svg xmlns="{NAMESPACE}"><script>alert(1)</script></svg>'
    page = page_of(replace(HOLDS, diagram=diagram))
    assert_inert(page)
    assert "The diagram is left out, because it contains element 'script'." in page.text


def test_a_diagram_is_inline() -> None:
    page = page_of(replace(FAILS, diagram=from_story([Step("client", "broker", "Produce")])))
    assert_inert(page)
    assert {"client", "broker", "Produce"} <= set(page.words["text"])


def test_long_evidence_is_cut_on_the_page_and_whole_in_json() -> None:
    long = "x" * MAX_EVIDENCE + "y" * 1234
    report = replace(report_of([replace(HOLDS, evidence=long)], NOW), findings=())
    page = Page(render(report))
    assert page.words["pre"] == ["x" * MAX_EVIDENCE]
    assert "1,234 more characters are in report.json" in page.text
    assert report.to_json()["verdicts"][0]["evidence"] == long


def test_ratios_of_benchmarks_are_drawn() -> None:
    bench = Verdict(check="bench", name="decode", expected="faster", found="faster", ok=True, figures={"ratio": 4.118})
    assert "4.12 times" in page_of(bench).words["text"]
    assert "svg" not in page_of(replace(bench, figures={"ratio": "unknown"}), HOLDS).tags


def test_the_environment_names_versions_date_and_seed_but_no_place() -> None:
    facts = report_of([replace(HOLDS, figures={"seed": 12345, "kafka": "4.3.0"})], NOW).environment
    assert facts["date"] == "2026-01-02 03:04 UTC"
    assert (facts["seed"], facts["Kafka of the recording"]) == ("12345", "4.3.0")
    assert {"Python", "kafka-eos"} <= set(facts)
    assert not any("/" in value for value in facts.values())


def test_long_identifiers_are_broken_between_their_words_and_stay_text() -> None:
    assert breakable("<b>OneTwo_three KIP-890") == "&lt;b&gt;One<wbr>Two_<wbr>three KIP-890"
    assert "Partition<wbr>Log" in render(report_of([HOLDS], NOW))


def test_the_page_loads_nothing_and_its_policy_forbids_loading() -> None:
    text = render(report_of([HOLDS], NOW))
    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    assert "@import" not in text
    assert "url(" not in text
    assert str(paths.CLONE) not in text
    assert_inert(Page(text))


def test_report_json_holds_the_verdicts_as_they_were(tmp_path: Path) -> None:
    verdicts = [FAILS, replace(HOLDS, figures={"states": 3, "ratio": 1.5, "kafka": "4.3.0"}, evidence="é\x00\ud800")]
    write_report(verdicts, tmp_path / "no" / "folder" / "yet" / "report.html", NOW)
    written = json.loads((tmp_path / "no" / "folder" / "yet" / "report.json").read_text(encoding="utf-8"))
    assert sorted((verdict_from_json(row) for row in written["verdicts"]), key=lambda v: v.ok) == verdicts
    assert written["headline"] == "PartitionLog: 3 differences (1 of 2 verdicts differs)"
    assert written["differing"] == [{"check": "graph", "name": "PartitionLog"}]
    (c03,) = [row for row in written["claims"] if row["id"] == "C03"]
    assert (c03["standing"], c03["verdicts"]) == ("settled", [{"check": "model", "name": "PartitionLog"}])


def test_the_exit_code_tells_whether_a_verdict_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, out = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "report.html"
    write_verdicts(good, [HOLDS])
    write_verdicts(bad, [replace(FAILS, found="3 differences in [red]")])
    assert cli.main(["ledger", "report", "--verdicts", str(good), "--out", str(out)]) == 0
    assert cli.main(["ledger", "report", "--verdicts", str(good), str(bad), "--out", str(out)]) == 1
    assert (
        "differs: graph PartitionLog: expected 0 differences, found 3 differences in [red]" in capsys.readouterr().out
    )
    assert "1 of 2 verdicts differs" in out.read_text(encoding="utf-8")


def test_the_command_reads_all_of_build_verdicts_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "build_folder", lambda: tmp_path)
    write_verdicts(tmp_path / "verdicts" / "a.json", [HOLDS])
    write_verdicts(tmp_path / "verdicts" / "b.json", [FAILS])
    assert cli.main(["ledger", "report"]) == 1
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["count"] == 2


def test_of_verdicts_of_the_same_check_and_name_in_build_verdicts_the_newest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "build_folder", lambda: tmp_path)
    older, newer = tmp_path / "verdicts" / "b.json", tmp_path / "verdicts" / "a.json"
    write_verdicts(older, [FAILS])
    write_verdicts(newer, [replace(FAILS, ok=True)])
    now = newer.stat().st_mtime
    os.utime(older, (now + 1, now + 1))
    os.utime(newer, (now + 2, now + 2))
    assert cli.main(["ledger", "report"]) == 0
    os.utime(newer, (now, now))
    assert cli.main(["ledger", "report"]) == 1
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["count"] == 1


@pytest.mark.parametrize("call", ["report", "claims C03", "properties PartitionLog"])
def test_verdicts_of_an_earlier_spec_are_told_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    monkeypatch.setattr(paths, "build_folder", lambda: tmp_path)
    kept = tmp_path / "verdicts" / "a.json"
    write_verdicts(kept, [HOLDS])
    changed = max(sources(), key=lambda file: file.stat().st_mtime_ns)
    assert changed.suffix in {".tla", ".toml", ".py"}
    at = changed.stat().st_mtime
    os.utime(kept, (at, at))
    cli.main(["ledger", *call.split()])
    assert "left out" not in capsys.readouterr().err
    os.utime(kept, (at - 1, at - 1))
    assert cli.main(["ledger", *call.split()]) != 0
    said = capsys.readouterr().err
    assert f"left out, because {changed} has changed since: {kept}; check again" in said
    cli.main(["ledger", *call.split(), "--verdicts", str(kept)])
    assert "left out" not in capsys.readouterr().err


def test_the_sources_are_those_of_the_spec_its_models_its_releases_and_its_machines() -> None:
    found = {str(file.relative_to(paths.CLONE)) for file in sources()}
    assert {"spec/PartitionLog.tla", "spec/releases.toml", "spec/models/PartitionLog.toml"} <= found
    assert "reference/kafka_eos/machines/partition_log.py" in found


def test_no_verdict_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "build_folder", lambda: tmp_path)
    assert cli.main(["ledger", "report"]) == 2
    assert "no verdicts in" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


GOOD_ROW = HOLDS.to_json()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "no list of verdicts"),
        ("3", "no list of verdicts"),
        ("[3]", "no list of verdicts"),
        ("[" * 100_000, "no list of verdicts"),
        (json.dumps([{"check": "model"}]), "no list of verdicts"),
        (json.dumps([{**GOOD_ROW, "more": 1}]), "no list of verdicts"),
        (json.dumps([GOOD_ROW, {**GOOD_ROW, "ok": "yes"}]), "verdict 1: ok is 'yes', not true or false"),
        (json.dumps([{**GOOD_ROW, "name": 3}]), "verdict 0: name is 3, not text"),
        (json.dumps([{**GOOD_ROW, "seconds": float("nan")}]), "seconds is nan, not a time"),
        (json.dumps([{**GOOD_ROW, "seconds": 10**400}]), "not a time"),
        (json.dumps([{**GOOD_ROW, "seconds": -0.5}]), "seconds is -0.5, not a time"),
        (json.dumps([{**GOOD_ROW, "figures": []}]), "figures is .*, not an object"),
        (json.dumps([{**GOOD_ROW, "figures": {"a": None, "b": None}}]), "the figure 'a' is neither"),
        (json.dumps([{**GOOD_ROW, "figures": {"a": float("inf")}}]), "the figure 'a' is neither"),
        (json.dumps([{**GOOD_ROW, "claims": [1]}]), "claims has 1, which is no text"),
        (json.dumps([{**GOOD_ROW, "causes": [1]}]), "causes has 1, which is no text"),
    ],
)
def test_a_file_that_holds_no_verdicts_is_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, reason: str
) -> None:
    file = tmp_path / "verdicts.json"
    file.write_text(content, encoding="utf-8")
    assert cli.main(["ledger", "report", "--verdicts", str(file), "--out", str(tmp_path / "report.html")]) == 2
    with pytest.raises(ValueError, match=f"verdicts.json: .*{reason}"):
        load_verdicts([file])
    assert "verdicts.json: " in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(["ledger", "report", "--verdicts", str(tmp_path / "none.json"), "--out", str(tmp_path / "r.html")])
        == 2
    )
    assert "none.json: No such file" in capsys.readouterr().err


def test_a_page_that_would_overwrite_its_own_json_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verdicts.json"
    write_verdicts(file, [HOLDS])
    assert cli.main(["ledger", "report", "--verdicts", str(file), "--out", str(tmp_path / "report.json")]) == 2
    assert "ends in .html" in capsys.readouterr().err


# --- the first screen -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "light"),
    [
        (replace(FAILS, ok=True), "as expected"),
        (FAILS, "differs"),
        (replace(FAILS, ok=True, unknown=2, unjudged="no log"), "not all judged"),
    ],
)
def test_the_tower_has_a_light_for_each_floor_and_a_floor_without_verdicts_is_dark(graph: Verdict, light: str) -> None:
    text = render(report_of([HOLDS, graph], NOW))
    tower = text[text.index('<ol class="tower"') : text.index("</ol>")]
    lights = re.findall(r'class="light" role="img" aria-label="([^"]*)"', tower)
    assert lights == ["not checked here", light, "as expected"], "Kafka, Reference, Specs"
    assert "Same graph 1" in tower


def test_the_page_of_an_audit_has_no_tower_and_no_script(tmp_path: Path) -> None:
    write_page([HOLDS, FAILS], tmp_path / "page.html", NOW, subject="4 logs")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert not page.tags & {"ol", "script", "input"}


def test_the_only_script_searches_and_is_allowed_by_its_hash() -> None:
    text = render(report_of([HOLDS, FAILS], NOW))
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in text
    assert '<input id="search"' in text


def test_the_report_names_what_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdict = Verdict(check="replay", name="gap", expected="0 findings", found="0 findings", ok=True)
    unjudged = replace(verdict, name="order", unknown=2, unjudged="2 of 2 batches: compacted")
    write_verdicts(tmp_path / "v.json", [verdict, unjudged])
    out = tmp_path / "r.html"
    assert cli.main(["ledger", "report", "--verdicts", str(tmp_path / "v.json"), "--out", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == ["  not judged: replay order: 2 of 2 batches: compacted"]
