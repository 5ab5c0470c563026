"""Writes the examples of the public headers as one source file, to be compiled.

usage: header_examples.py OUT.cc FILE...

An example in a header stands in a comment, indented by three blanks. It may use a model
(onnx::ModelProto), a tensor's bytes, and whatever the headers declare.
"""

import re
import sys
from pathlib import Path

IN_HEADER = re.compile(r"(?:^ *//   .*\n)+", re.MULTILINE)


def examples(path: Path) -> list:
    """The texts of the examples of a header."""
    blocks = IN_HEADER.findall(path.read_text())
    return [re.sub(r"^ *//   ", "  ", block, flags=re.MULTILINE) for block in blocks]


def main() -> None:
    out, headers = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    text = "// Made by header_examples.py.\n#include <array>\n#include <iostream>\n"
    text += "".join(f'#include "onnx_external/{header.name}"\n' for header in headers)
    text += "\nusing namespace onnx_external;\n"
    count = 0
    for header in headers:
        for example in examples(header):
            count += 1
            signature = f"void example_{count}(onnx::ModelProto& model, std::span<const std::byte> bytes)"
            text += f"\n// {header.name}\n{signature};\n{signature} {{\n"
            text += f"  (void)model, (void)bytes;\n{example}}}\n"
    if count == 0:
        sys.exit("no header has an example")
    if not out.exists() or out.read_text() != text:
        out.write_text(text)


main()
