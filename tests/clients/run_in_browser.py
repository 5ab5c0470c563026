"""Opens folders in Chromium. usage: run_in_browser.py JOBS.json ANSWERS.json NODE_MODULES HOW

HOW is transformers.js, or onnxruntime-web, which runs the graphs through examples/browser.
"""

import json
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "browser"
sys.path[:0] = [str(EXAMPLE), str(HERE.parent / "page")]

from browser import Browser  # noqa: E402
from serve import server  # noqa: E402


def answer(browser: Browser, address: str, job: dict, how: str) -> dict:
    # After a failed session, transformers.js cannot open others. Therefore each job gets its own page.
    browser.open(f"{address}/index.html")
    given = ", ".join(json.dumps(each) for each in (Path(job["folder"]).name, job, how))
    call = f"import('/tests/browser_jobs.mjs').then(jobs => jobs.answerJob({given}))"
    found = browser.send("Runtime.evaluate", expression=call, awaitPromise=True, returnByValue=True)
    if "exceptionDetails" in found:
        return {"error": str(found["exceptionDetails"].get("text"))}
    return found["result"]["value"]


def main() -> None:
    jobs, (answers, modules, how) = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2:]
    folders = {
        "tests": HERE,
        "node_modules": Path(modules),
        "models": Path(jobs[0]["folder"]).parent,
    }
    with server(folders) as running, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        browser = Browser(Path(profile))
        try:
            address = f"http://127.0.0.1:{running.server_port}"
            found = [answer(browser, address, job, how) for job in jobs]
        finally:
            browser.close()
            running.shutdown()
    Path(answers).write_text(json.dumps(found))


main()
