"""Serve an exported folder, and the page that generates text with it, to a browser on this machine.

npm install @huggingface/transformers@4.3.2
onnx-external export llama/ -o out --for transformers.js
python serve.py out          # then open what it prints
"""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Handler(SimpleHTTPRequestHandler):
    """Finds files by what their path begins with."""

    extensions_map = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript"} | {
        ".wasm": "application/wasm", ".json": "application/json", "": "application/octet-stream"
    }  # fmt: skip

    def __init__(self, *args: object, folders: dict[str, Path]) -> None:
        self._folders = folders
        super().__init__(*args)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        """Return the file that a path means, of one of the folders."""
        first, _, rest = path.partition("?")[0].lstrip("/").partition("/")
        folder = self._folders.get(first, HERE)
        found = (folder / (rest if first in self._folders else first)).resolve()
        is_inside = found.is_relative_to(folder.resolve())
        return str(found if is_inside else folder / "not-found")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def server(folders: dict[str, Path], port: int = 0) -> ThreadingHTTPServer:
    """Return a server for this machine alone.

    Args:
        folders: by the first part of the path.
        port: 0 takes any that is free.
    """
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, folders=folders))


if __name__ == "__main__":
    modules = Path(sys.argv[2] if sys.argv[2:] else "node_modules")
    with server({"model": Path(sys.argv[1]), "node_modules": modules}) as running:
        print(f"http://127.0.0.1:{running.server_port}/index.html")
        running.serve_forever()
