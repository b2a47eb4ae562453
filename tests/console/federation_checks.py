"""The page before a real federation, through `fluvial console`; the documentation's pictures are made on the way."""

from browser import Page, until
from stand_in import SOURCE

IMAGES = SOURCE / "docs/images"


class Pictures:
    def __init__(self, record):
        self.record = record

    def take(self, page, name, **options):
        if not self.record:
            return
        IMAGES.mkdir(exist_ok=True)
        page.ask("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        page.value("new Promise((go) => setTimeout(go, 1100))")  # once more drawn
        path = IMAGES / f"console-{name}.png"
        page.picture(path, **options)
        assert path.stat().st_size < 200_000, f"{path}: {path.stat().st_size} bytes"
        print(f"recorded {path.relative_to(SOURCE)}: {path.stat().st_size // 1000} KB")


def follows_a_run(federation, browser, pictures):
    """From before the first run to a site's death, and back."""
    page = Page(browser, 1280, 880)
    _, address = federation.console()
    assert page.go(address) == 200
    page.wait_text("eu-hospitals", "#federation")
    assert "key" not in page.value("location.href"), "the key has left the address bar"
    page.wait_text("live", "#connection")
    page.wait_text("4", "[data-key=Sites] dd")
    page.wait_text("No run yet", "#round")
    federation.train(pace_ms=1200)
    run = federation.start_run()
    page.wait_text(f"{run} digits", "#runs")
    page.wait_text("Round 1 opened: 4 sites take part", "#events")
    page.wait_text("Round 2 committed: 4 of 4 sites", "#events")
    page.wait_text("test_accuracy", "#facts")
    page.wait_text("loss, sites", "#plots")

    page.click_for("[data-verb=pause]", "the question", "document.querySelector('#confirm').open")
    page.click("#confirm-yes")
    page.wait_text("paused", "#runs .pill")
    page.wait_text("by an administrator", "#round")
    assert federation.ask("run", "show")["status"] == "paused"
    page.wait("the answer", "!document.querySelector('#confirm').open")
    page.click_for("[data-verb=resume]", "the question", "document.querySelector('#confirm').open")
    page.click("#confirm-yes")
    page.wait_text("running", "#runs .pill")
    page.wait_text(f"Run {run} is running", "#events")
    assert federation.ask("run", "show")["status"] == "running"

    page.wait("a dozen rounds", "Number(document.querySelector('[data-key=Round] dd').firstChild.data) >= 12", 180)
    page.wait("a site at work", "!!document.querySelector('.nodes [data-kind=busy], .nodes [data-kind=good]')")
    page.value("scrollTo({top: 0, behavior: 'instant'})")
    pictures.take(page, "light", whole=False)
    if page.value("document.querySelectorAll('#spans .lane').length") > 1:
        page.value("document.querySelector('#timeline').scrollIntoView({behavior: 'instant'})")
        pictures.take(page, "timeline", whole=False)
        page.value("scrollTo({top: 0, behavior: 'instant'})")

    federation.kill("hospital-oslo")
    row = "[...document.querySelectorAll('#tree li')].find((one) => one.innerText.includes('hospital-oslo')).innerText"
    page.wait("the site to be shown away", f"{row}.includes('away')")
    page.wait_text("hospital-oslo is away", "#events")
    page.wait_text("3", "[data-key=Sites] dd")
    page.look(1280, 880, scheme="dark")
    page.wait_text("committed: 3 of", "#events")
    pictures.take(page, "dark", whole=False)
    page.look(390, 844, phone=True)
    assert page.value("document.documentElement.scrollWidth") <= 390
    page.value("document.querySelector('.tree').scrollIntoView({behavior: 'instant'})")
    pictures.take(page, "phone", whole=False)
    page.look(1280, 880)
    federation.again("hospital-oslo")
    page.wait("the site to be back", f"!{row}.includes('away')")
    page.wait_text("hospital-oslo is back", "#events")
    page.expect_no_errors()
    page.close()


def outlives_a_restart_of_the_coordinator(federation, browser, _):
    page = Page(browser)
    _, address = federation.console()
    page.go(address)
    page.wait_text("live", "#connection")
    federation.kill("coordinator")
    page.wait_text("connection lost", "#connection")
    page.wait_text("no connection to the coordinator", "#problems")
    federation.start_coordinator()
    page.wait_text("live", "#connection")
    page.wait_text("4", "[data-key=Sites] dd")
    page.wait("the problem to be gone", "!document.querySelector('#problems').innerText.includes('no connection')")
    page.close()


def stops_a_run(federation, browser, _):
    page = Page(browser)
    _, address = federation.console()
    page.go(address)
    page.wait("the button", "!!document.querySelector('[data-verb=stop]')")
    page.click_for("[data-verb=stop]", "the question", "document.querySelector('#confirm').open")
    page.click("#confirm-yes")
    page.wait_text("stopped", "#runs .pill")
    until("the journal to say so", lambda: federation.ask("run", "show")["status"] == "stopped")
    page.expect_no_errors()
    page.close()


CHECKS = [follows_a_run, outlives_a_restart_of_the_coordinator, stops_a_run]
