"""Checks that lines of the Markdown pages have at most 100 columns. usage: docs_lines_test.py ROOT

Tables, code (fenced or indented by four), and lines with a single link or path are exempt.
"""

import re
import sys
from pathlib import Path

MAX_COLUMNS = 100
root = Path(sys.argv[1])
pages = sorted([*root.glob("*.md"), *root.glob("docs/*.md")])


def long_lines(text):
    """Yield the numbers and lengths of lines that are too long."""
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        is_code = is_fenced or line.startswith("    ")
        is_one_word = len(re.sub(r"^\s*([-*]|\d+\.)\s+", "", line).split()) < 2
        if len(line) > MAX_COLUMNS and not (is_code or is_one_word or line.startswith("|")):
            yield number, len(line)


wide = "word " * 21
samples = [wide, "| " + wide, "    " + wide, "```\n" + wide + "\n```", "- " + "x" * 120]
if [bool(list(long_lines(sample))) for sample in samples] != [True, False, False, False, False]:
    sys.exit("the check does not find what it looks for")

faults = [f"{page.relative_to(root)}:{number}: {columns} columns"
          for page in pages for number, columns in long_lines(page.read_text())]
print("\n".join(faults) or f"{len(pages)} pages, no line over {MAX_COLUMNS} columns")
sys.exit(1 if faults or not pages else 0)
