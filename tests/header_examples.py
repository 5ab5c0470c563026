"""Collects the examples of the public headers and of a page in one source file, so that they are compiled.

usage: header_examples.py OUT.cc PAGE.md HEADER...

An example in a header is part of a comment and indented by three spaces. It may use a model (onnx::ModelProto), a
tensor's bytes, and whatever the headers declare. Those of the page are functions, fenced as cpp.
"""

import re
import sys
from pathlib import Path

ON_PAGE = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDES = ("array", "atomic", "functional", "iostream")
# After an empty line of the comment, unlike the second line of an item in a list.
IN_HEADER = re.compile(r"(?<=//\n)(?:^ *//   .*\n)+", re.MULTILINE)


def examples(path: Path) -> list:
    """Return the examples in a header."""
    blocks = IN_HEADER.findall(path.read_text())
    return [re.sub(r"^ *//   ", "  ", block, flags=re.MULTILINE) for block in blocks]


def main() -> None:
    out, page, *headers = map(Path, sys.argv[1:])
    text = "// Made by header_examples.py.\n" + "".join(f"#include <{name}>\n" for name in INCLUDES)
    text += "".join(f'#include "onnx_external/{header.name}"\n' for header in headers)
    text += "\nusing namespace onnx_external;\n"
    count = 0
    for header in headers:
        for example in examples(header):
            count += 1
            signature = f"void example_{count}(onnx::ModelProto& model, std::span<const std::byte> bytes)"
            text += f"\n// {header.name}\n{signature};\n{signature} {{\n"
            text += f"  (void)model, (void)bytes;\n{example}}}\n"
    functions = ON_PAGE.findall(page.read_text())
    if count == 0 or not functions:
        sys.exit("no header has an example, or the page has none")
    text += f"\nnamespace page {{\nnamespace oe = onnx_external;\n\n// {page.name}\n"
    for function in functions:
        signature = function[: function.index(" {\n")]
        text += f"{signature};\n{function}\n"
    text += "}  // namespace page\n"
    if not out.exists() or out.read_text() != text:
        out.write_text(text)


main()
