"""The page against a stand-in coordinator: what it shows, what it lets a person do, and what it must never do."""

import json
import re
import time

import scenes
from browser import Page, until
from stand_in import POLICY, SOURCE, StandIn

CONSOLE = SOURCE / "coordinator/console"
HOSTILE = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>\"'&lt;"
NAMED = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "dialog", "img", "image", "progressbar", "region",
         "table", "heading", "navigation", "status", "DisclosureTriangle"}


class Shown:
    """A page of a stand-in that says what the scene says."""

    def __init__(self, browser, scene, **look):
        self.stand_in = StandIn(scene)
        self.page = Page(browser, **look)
        assert self.page.go(self.stand_in.address) == 200
        self.page.wait_text("live", "#connection")
        self.page.wait("the members", "document.querySelector('#tree .nodes, #tree .empty') !== null")

    def __enter__(self):
        return self.stand_in, self.page

    def __exit__(self, failed, *_):
        if failed is None:
            self.page.expect_no_errors()
        self.page.close()
        self.stand_in.close()


def shows_everything(browser):
    with Shown(browser, scenes.scene()) as (_, page):
        for selector, texts in {
            "#problems": ["clinic-zurich: in quarantine", "fluvial nodes clear clinic-zurich", "its certificate ends in 3"],
            "#facts": ["17", "of 60", "5", "of 7 connected", "test_accuracy"],
            "#tree": ["hospital-cologne", "sending, 61", "eu-north-1, which was away", "in the sum", "no worker", "28\u00a0MiB"],
            "#round": ["Round 18", "2 of 5", "1 of 3", "hospital-tampere", "look at the machine"],
            "#runs": ["3 tumours", "running", "by an administrator", "topk:ratio=0.05"],
            "#events": ["Round 17 committed: 4 of 5 sites, late: hospital-tampere (no worker attached)"],
            "#plots": ["gradient_norm", "test_loss", "bytes up, in all"],
            "#spans": ["round 17 took 4.4 s: 3.1 s training at hospital-brussels", "nothing was heard from hospital-tampere"],
            "#table": ["quarantine: submitted two digests", "(wished: eu-north-1)", "4 of 17"],
        }.items():
            for text in texts:
                page.wait_text(text, selector)
        kinds = page.value("[...document.querySelectorAll('#table td:nth-child(7) .state')].map((cell) => cell.dataset.kind)")
        # One that ends tomorrow is none to look at, as all do: only the one that the coordinator calls a problem.
        assert kinds.count("warn") == 1 and kinds.count("plain") == len(kinds) - 1, kinds
        assert page.value("document.title") == "eu-oncology · Fluvial"
        page.wait("the critical path", "document.querySelectorAll('#spans .critical rect').length >= 4")


def follows_events(browser):
    scene = scenes.scene()
    with Shown(browser, scene) as (coordinator, page):
        page.wait_text("test_loss", "#plots")
        coordinator.send("opened", {"event": "opened", "run": 3, "round": 19, "attempt": 2, "participants": 7, "at": scenes.ago(0)})
        page.wait_text("Round 19 opened, attempt 2: 7 sites take part", "#events")
        committed = {**scenes.rounds(18)[-1], "event": "committed", "at": scenes.ago(0)}
        coordinator.send("committed", committed)
        page.wait_text("Round 18 committed: 4 of 4 sites", "#events")
        page.wait("the plots to go on", "document.querySelector('[data-plot]').dataset.last === '18'")
        coordinator.send("evaluated", {"event": "evaluated", "run": 3, "round": 18, "evaluation": {"test_accuracy": 0.987}})
        page.wait_text("0.987", "#facts")
        coordinator.send("state", {"event": "state", "run": 3, "status": "paused", "reason": "quorum missed 15 times", "at": scenes.ago(0)})
        page.wait_text("Run 3 is paused: quorum missed 15 times", "#events")
        paused = {**scene["/v1/status"]["run"], "status": "paused", "reason": "quorum missed 15 times", "open": None}
        coordinator.send("status", {**scene["/v1/status"], "run": paused, "runs": [paused], "waits": [], "problems": []})
        page.wait_text("The run is paused: quorum missed 15 times", "#round")
        page.wait("no problem to be left", "document.querySelector('#problems').hidden")
        page.wait("the run to be resumable", "!!document.querySelector('[data-verb=resume]') && !document.querySelector('[data-verb=pause]')")
        coordinator.send("node", {**scenes.members()[2], "connected": False, "since": scenes.ago(0)})
        page.wait_text("hospital-amsterdam is away", "#events")
        page.wait_text("away", "[data-key='node 3'] .state")
        coordinator.send("node", {"id": 6, "removed": True})
        page.wait_text("hospital-oslo is no member any more", "#events")
        page.wait("its row to be gone", "!document.querySelector(\"[data-key='node 6']\")")


def asks_before_it_changes_a_run(browser):
    with Shown(browser, scenes.scene()) as (coordinator, page):
        dialog = "document.querySelector('#confirm').open"
        page.wait_text("round 17 took", "#spans")  # all has come, and nothing moves away from under the pointer
        page.click("[data-verb=pause]")
        page.wait("the question", dialog)
        assert "Pause run 3 (tumours)?" in page.text("#confirm")
        assert page.value("document.activeElement.id") == "confirm-no", "Enter alone changes nothing"
        page.key("Escape")
        page.wait("the question to be gone", f"!{dialog}")
        page.click("[data-verb=stop]")
        page.click("#confirm-no")
        page.wait("the question to be gone", f"!{dialog}")
        assert coordinator.changes == []
        coordinator.refuse_changes = "run 3 is not the active one"
        page.click("[data-verb=pause]")
        page.click("#confirm-yes")
        page.wait_text("run 3 is not the active one", "#confirm-failure")
        page.errors.clear()  # the browser itself notes the refusal
        coordinator.refuse_changes = ""
        page.click("#confirm-yes")
        page.wait("the question to be gone", f"!{dialog}")
        assert [path for path, _ in coordinator.changes] == ["/v1/runs/3/pause"] * 2
        assert {key.lower(): value for key, value in coordinator.changes[1][1].items()}["x-fluvial-console"] == "1"


def a_read_only_one_has_no_buttons_for_it(browser):
    with Shown(browser, {**scenes.scene(), "/session": {"read_only": True}}) as (_, page):
        page.wait_text("3 tumours", "#runs")
        page.wait("both runs", "document.querySelectorAll('[data-action=show-run]').length === 2")  # it changes nothing
        assert page.value("document.querySelectorAll('[data-verb]').length") == 0


def text_stays_text(browser):
    scene = json.loads(json.dumps(scenes.scene()).replace("hospital-cologne", "HOSTILE").replace("tumours", "HOSTILE")
                       .replace("eu/west", "HOSTILE").replace("gradient_norm", "HOSTILE").replace("eu-oncology", "HOSTILE")
                       .replace("no worker attached", "HOSTILE").replace("by an administrator", "HOSTILE")
                       .replace("look at the machine", "HOSTILE").replace("HOSTILE", json.dumps(HOSTILE)[1:-1]))
    scene["/v1/rounds/17/timeline"]["spans"][0]["name"] = HOSTILE
    scene["/v1/rounds/17/timeline"]["words"] = HOSTILE
    with Shown(browser, scene) as (coordinator, page):
        coordinator.send("state", {"event": "state", "run": 2, "status": HOSTILE, "reason": HOSTILE, "at": scenes.ago(0)})
        for place in ("#tree", "#round", "#runs", "#events", "#plots", "#spans", "#table", "#federation"):
            page.wait_text(HOSTILE, place)
        page.click("[data-verb=pause]")
        page.wait_text(HOSTILE, "#confirm-title")
        page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.wait("the tables", "document.querySelectorAll('.plot table').length > 5")
        assert page.value("window.hacked") is None
        assert page.value("document.querySelectorAll('img').length") == 1, "the page's own"
        assert page.value("document.scripts.length") == 1


def comes_back_by_itself(browser):
    with Shown(browser, scenes.scene()) as (coordinator, page):
        page.wait_text("test_loss", "#plots")
        coordinator.hang_up()
        page.wait_text("connection lost", "#connection")
        page.wait_text("no connection to the coordinator", "#problems")
        page.wait_text("live", "#connection")
        page.wait("the problem to be gone", "!document.querySelector('#problems').innerText.includes('no connection')")
        assert re.fullmatch(r"1-\d+", coordinator.last_ids[-1]), coordinator.last_ids
        coordinator.send("opened", {"event": "opened", "run": 3, "round": 20, "attempt": 1, "participants": 5, "at": scenes.ago(0)})
        page.wait_text("Round 20 opened", "#events")


def bears_what_is_not_told(browser):
    """A coordinator of an earlier version: no waits, problems, reasons, timeline."""
    full = scenes.scene()
    status = {key: value for key, value in full["/v1/status"].items() if key not in ("waits", "problems", "runs")}
    late = {"workers", "doing", "progress", "certificate_ends_at", "parent_wished", "since", "bytes"}
    nodes = [{key: value for key, value in node.items() if key not in late} for node in full["/v1/nodes"]["nodes"]]
    rounds = [{key: value for key, value in one.items() if key != "late_sites"} for one in full["/v1/rounds"]["rounds"]]
    scene = {"/v1/status": status, "/v1/nodes": {"nodes": nodes}, "/v1/runs": full["/v1/runs"], "/v1/rounds": {"pruned": 0, "rounds": rounds}}
    with Shown(browser, scene) as (_, page):
        for place, text in (("#tree", "awaited"), ("#round", "hospital-cologne"), ("#plots", "test_loss"), ("#table", "hospital-oslo"),
                            ("#spans", "No spans have been reported")):
            page.wait_text(text, place)
        assert "undefined" not in page.text() and "NaN" not in page.text()
        page.errors[:] = [error for error in page.errors if "/session" not in error]  # which the console's port answers


def an_empty_federation_says_what_to_do(browser):
    status = {**scenes.scene()["/v1/status"], "run": None, "runs": [], "waits": [], "problems": [], "sites_connected": 0}
    with Shown(browser, {"/session": {"read_only": False}, "/v1/status": status, "/v1/nodes": {"nodes": []}, "/v1/runs": {"runs": []}}) as (_, page):
        page.wait_text("fluvial token create", "#tree")
        page.wait_text("fluvial run start", "#round")
        page.wait_text("None yet", "#runs")


def many_members_are_borne(browser):
    scene = scenes.scene()
    scene["/v1/nodes"]["nodes"] = [scenes.node(1, "agg", "aggregator", "eu")] + [
        scenes.node(i, f"site-{i}", "site", "eu", "agg") for i in range(2, 1002)]
    with Shown(browser, scene) as (_, page):
        page.wait_text("and 882 more: see Members", "#tree")
        page.wait_text("and 701 more", "#table")
        page.click_for("#table input", "the field to have the focus", "document.activeElement.type === 'search'")
        page.ask("Input.insertText", text="site-999")
        page.wait("how many are shown", "document.querySelector('#table').innerText.split('\\n').includes('1 of 1001')")
        page.wait("a row", "document.querySelectorAll('#table tbody tr').length === 1")
        assert page.value("document.activeElement.type") == "search", "the field keeps the focus"


def focus_stays_where_it_was(browser):
    scene = scenes.scene()
    with Shown(browser, scene) as (coordinator, page):
        page.wait_text("round 17 took", "#spans")
        page.wait("the button", "!!document.querySelector('[data-verb=stop]')")
        page.value("document.querySelector('[data-verb=stop]').focus()")
        page.value("document.querySelector('.plot details').open = true")
        page.wait("its table", "document.querySelectorAll('.plot table').length === 1")
        for number in (19, 20):
            coordinator.send("opened", {"event": "opened", "run": 3, "round": number, "attempt": 1, "participants": 5, "at": scenes.ago(0)})
            page.wait_text(f"Round {number} opened", "#events")
        assert page.value("document.activeElement.dataset.verb") == "stop"
        assert page.value("document.querySelector('.plot details').open") is True
        seen = set()
        page.value("document.body.focus(); document.activeElement.blur()")
        for _ in range(60):
            page.key("Tab")
            seen.add(page.value("document.activeElement.id || document.activeElement.dataset.verb || document.activeElement.tagName"))
        assert {"pause", "stop", "SUMMARY", "A", "INPUT"} <= seen, seen


def every_control_has_a_name(browser):
    with Shown(browser, scenes.scene()) as (_, page):
        page.wait_text("round 17 took", "#spans")
        page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.wait("the tables", "document.querySelectorAll('.plot table').length > 5")

        def nameless():
            nodes = page.ask("Accessibility.getFullAXTree")["nodes"]
            controls = [node for node in nodes if not node.get("ignored") and node.get("role", {}).get("value") in NAMED]
            assert len(controls) > 40
            return [(node["role"]["value"], node.get("properties")) for node in controls
                    if not node.get("name", {}).get("value") and node["role"]["value"] not in ("table", "status")]

        assert nameless() == [], nameless()
        page.click("[data-verb=stop]")
        page.wait("the question", "document.querySelector('#confirm').open")
        assert page.value("document.querySelector('#confirm').getAttribute('aria-labelledby')") == "confirm-title"
        assert [one for one in page.ask("Accessibility.getFullAXTree")["nodes"] if one.get("role", {}).get("value") == "dialog"
                and "Stop run 3" in one["name"]["value"]]
        assert page.value("[...document.querySelectorAll('[id]')].length === new Set([...document.querySelectorAll('[id]')].map((one) => one.id)).size")


LINES_MEET_ROWS = """(() => {
    const middle = (one) => { const box = one.getBoundingClientRect(); return box.y + box.height / 2; };
    const rows = [...document.querySelectorAll('#tree li')].map(middle);
    const dots = [...document.querySelectorAll('#tree circle')].map(middle);
    return rows.length === dots.length && rows.every((y, i) => Math.abs(y - dots[i]) < 1);
})()"""


def fits_every_screen(browser):
    for width, height, phone in ((320, 640, True), (390, 844, True), (768, 1024, False), (1440, 900, False), (2560, 1440, False)):
        with Shown(browser, scenes.scene(), width=width, height=height, phone=phone) as (_, page):
            page.wait_text("round 17 took", "#spans")
            assert page.value("document.documentElement.scrollWidth") <= width, f"{width}: it scrolls sideways"
            wide = page.value("""[...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll') && !one.closest('.sr')
                && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 120))""")
            assert wide == [], f"{width}: {wide}"
            page.wait(f"the tree's lines to meet its rows at {width}", LINES_MEET_ROWS)
            page.look(1000 if phone else 360, height)  # turned, or the window made another size
            page.wait("the tree to follow", LINES_MEET_ROWS)


def fits_before_it_is_drawn_anew(browser):
    """A screen that was turned: what was drawn for the other width stays inside until the page draws again."""
    with Shown(browser, scenes.scene(), width=1280, height=880) as (_, page):
        page.wait_text("round 17 took", "#spans")
        page.value("requestAnimationFrame = () => {}")  # nothing is drawn any more
        drawn = page.value("document.querySelector('#spans svg').outerHTML")
        page.look(390, 844, phone=True)
        page.wait("the narrow layout", "innerWidth === 390")
        assert page.value("document.documentElement.scrollWidth") <= 390
        assert page.value("document.querySelector('#spans svg').outerHTML") == drawn


def colours_are_apart(browser):
    """WCAG 2.1: text 4.5 to 1 on each ground, graphics 3 to 1, by the style sheet's own variables."""
    for scheme in ("light", "dark"):
        with Shown(browser, scenes.scene(), scheme=scheme) as (_, page):
            style = page.value("""(() => { const of = getComputedStyle(document.documentElement); return Object.fromEntries(
                [...document.styleSheets[0].cssRules[0].style].filter((name) => name.startsWith('--')).map((name) => [name.slice(2), of.getPropertyValue(name).trim()])); })()""")
            grounds = ["ground", "panel", "sunken", "good-ground", "warn-ground", "bad-ground"]
            pairs = [(text, ground, 4.5) for text in ("text", "muted", "accent", "good", "warn", "bad") for ground in grounds]
            spans = ("fetch", "train", "encode", "send", "add", "disk", "tell")
            pairs += [("on-accent", "accent", 4.5)] + [(name, "panel", 3) for name in (*spans, "river")]
            for one, other, least in pairs:
                assert contrast(style[one], style[other]) >= least, (scheme, one, other, contrast(style[one], style[other]))
            for name in spans:
                assert contrast("#0c1317", style[name]) >= 4.5, (scheme, "a span's name", name)


def contrast(one, other):
    def light(colour):
        parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    darker, lighter = sorted((light(one), light(other)))
    return (lighter + 0.05) / (darker + 0.05)


def nothing_moves_for_who_does_not_want_it(browser):
    with Shown(browser, scenes.scene()) as (_, page):
        moving = "document.getAnimations().length"
        page.wait("something to breathe", f"{moving} > 0")
        page.look(1440, 900, motion="reduce")
        page.wait("it to rest", f"{moving} === 0")


def figures_are_rounded_as_people_do(browser):
    with Shown(browser, scenes.scene()) as (_, page):
        said = page.value("""(async () => {
            const { axisTime, bytes, seconds, metric, percent } = await import('/console/format.js');
            const { ticksOf } = await import('/console/plots.js');
            const { rowsOf } = await import('/console/timeline.js');
            const { parser } = await import('/console/stream.js');
            const events = [];
            const take = parser((event) => events.push(event));
            for (const piece of ['id: 1-1\\nev', 'ent: a\\ndata: {"x"', ':1}\\n\\n: heartbeat\\n\\nretry: 5\\n\\ndata: y\\n', 'data: z\\n\\n']) take(piece);
            return {bytes: [0, 999, 1000, 999_499, 999_500, 1_234_567, 5e9, NaN].map(bytes), seconds: [0, 0.0004, 0.0995, 9.94, 9.96, 100, 7200, 200000].map(seconds),
                metric: [0, 1, 0.91710, 1234.5678, 12000000, 0.00001, -2.5].map(metric), percent: percent(0.615),
                axis: [0.21, 0.4, 4.42, 98].map((most) => [0.25, 0.5, 0.75, 1].map((part) => axisTime(part * most, most))),
                ticks: [ticksOf(0, 1), ticksOf(3, 3), ticksOf(0.31, 2.4), ticksOf(-1, 1)],
                lanes: rowsOf([{start_s: 1, end_s: 2}, {start_s: 0, end_s: 1}, {start_s: 0.5, end_s: 3}]).map(({row}) => row), events};
        })()""")
        plain = json.loads(json.dumps(said).replace("\\u00a0", " "))
        assert plain["bytes"] == ["0 B", "999 B", "0.98 KiB", "976 KiB", "976 KiB", "1.2 MiB", "4.7 GiB", "–"], plain["bytes"]
        assert plain["seconds"] == ["0 ms", "0 ms", "0.1 s", "9.9 s", "10 s", "2 min", "2 h", "2 days"], plain["seconds"]
        assert plain["metric"] == ["0", "1", "0.9171", "1234.57", "1.20e+7", "1.00e-5", "-2.5"], plain["metric"]
        assert plain["percent"] == "62 %"
        assert plain["axis"] == [["53 ms", "105 ms", "158 ms", "210 ms"], ["100 ms", "200 ms", "300 ms", "400 ms"],
                                 ["1.1 s", "2.2 s", "3.3 s", "4.4 s"], ["25 s", "49 s", "74 s", "98 s"]], plain["axis"]
        assert plain["ticks"][0] == [0, 0.5, 1] and plain["ticks"][2] == [0, 1, 2, 3], plain["ticks"]
        for ticks in plain["ticks"]:
            assert 2 <= len(ticks) <= 6 and ticks == sorted(set(ticks)), ticks
        assert plain["lanes"] == [0, 1, 0]
        assert plain["events"] == [{"id": "1-1", "event": "a", "data": '{"x":1}'}, {"data": "y\nz"}], plain["events"]


def a_window_has_a_goal_and_waits_for_nobody(browser):
    scene = scenes.scene()
    status = scene["/v1/status"]
    status["run"]["mode"] = "async"
    status["run"]["open"].update(mode="async", goal=3)
    status["waits"] = []
    run = next(run for run in scene["/v1/runs"]["runs"] if run["id"] == 3)
    run["mode"] = "async"
    with Shown(browser, scene) as (coordinator, page):
        page.wait_text("Window 18", "#round")
        assert f"of {run['rounds']} windows" in page.text("main").replace("\u00a0", " "), page.text("main")
        text = page.text("#round").replace("\u00a0", " ")
        assert "2 of 3" in text and "All sites" not in text and "Waits for" not in text, text
        coordinator.send("opened", {"event": "opened", "run": 3, "round": 19, "attempt": 1, "participants": 6, "at": scenes.ago(0)})
        page.wait_text("Window 19", "#round")
        assert "0 of 3" in page.text("#round"), "before the next status has come"


def parts_of_a_round_are_of_its_length(browser):
    scene = scenes.scene()
    spans = scene["/v1/rounds/17/timeline"]["spans"]
    spans.append({**spans[0], "name": "train", "start_s": 4.0, "end_s": 44.2})  # goes on behind the commit
    with Shown(browser, scene) as (_, page):
        page.wait_text("round 17 took", "#spans")
        assert "70\u00a0%" in page.text("#spans"), page.text("#spans")


def the_stand_in_has_the_coordinators_policy(_):
    text = (SOURCE / "coordinator/service/admin/page.cc").read_text()
    said = "".join(re.findall(r'"([^"]*)"', text.split("kPolicy =")[1].split(";\n")[0]))
    assert said == POLICY, said


def a_rounds_timeline_is_chosen(browser):
    scene = scenes.scene()
    scene["/v1/rounds/16/timeline"] = {**scenes.timeline(16), "words": "round 16 took 4.4 s: mostly training"}
    with Shown(browser, scene) as (coordinator, page):
        page.wait_text("round 17 took", "#spans")
        page.click("[data-action=show-round][aria-label='The round before']")
        page.wait_text("round 16 took", "#spans")
        coordinator.send("committed", {**scenes.rounds(18)[-1], "event": "committed", "at": scenes.ago(0)})
        page.wait_text("Round 18 committed", "#events")
        assert "round 16 took" in page.text("#spans"), "who looks at a round is left in peace"
        scene["/v1/rounds/18/timeline"] = {**scenes.timeline(18), "words": "round 18 took 4.4 s: mostly training"}
        page.click("[data-action=show-round][aria-label='Always the last round']")
        page.wait_text("round 18 took", "#spans")


CHECKS = [shows_everything, follows_events, asks_before_it_changes_a_run, a_read_only_one_has_no_buttons_for_it, text_stays_text,
          comes_back_by_itself, bears_what_is_not_told, an_empty_federation_says_what_to_do, many_members_are_borne,
          focus_stays_where_it_was, every_control_has_a_name, fits_every_screen,
          fits_before_it_is_drawn_anew, colours_are_apart,
          nothing_moves_for_who_does_not_want_it, figures_are_rounded_as_people_do, the_stand_in_has_the_coordinators_policy,
          a_rounds_timeline_is_chosen, a_window_has_a_goal_and_waits_for_nobody, parts_of_a_round_are_of_its_length]
