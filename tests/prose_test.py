"""Checks that no code depends on the text of a message or note, and how docstrings begin. usage: prose_test.py ROOT

Programs read `code`, `kind` and names (docs/python.md); sentences are for people. In the Python package, the
text of an exception or of a note must not be searched or compared, and no title of a list may be typed again. In C++,
no message may be searched. What other projects say is read in the places below, and nowhere else.

At most 1 % of the package's docstrings may begin with a question word or "Of": a function's begins with a verb in the
imperative ("Return whether ..."), any other with a noun (CONTRIBUTING.md). No text that a user may see says "is no X"
for "is not an X".
"""

import ast
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
PACKAGE = root / "python" / "onnx_external"

ALLOWED = {
    "_tracing/exporter_reasons.py": "torch's errors",
    "_control_flow/finding/blaming.py": "torch's errors",
    "_control_flow/runtime/branches.py": "torch's errors",
    "torch/_causes.py": "torch's errors",
    "transformers/_guarding.py": "transformers' errors",
    "_base/temporary.py": "the path that a message begins with",
    "tools/common/command.cc": "the path that a message begins with",
    "tools/common/verify_text.cc": "the path that a finding has beside its message",
}
SEARCHES = {"startswith", "endswith", "find", "index", "count", "search", "match", "fullmatch", "findall", "finditer"}
IN_CPP = re.compile(r"\b(message|title|when)\b\)?\.?(?:\.?(?:find|rfind|starts_with|ends_with)\(| == )")


def targets(node):
    """Return the names that a loop or comprehension binds. For a tuple, only the last one counts, which is the text."""
    node = node.elts[-1] if isinstance(node, ast.Tuple) else node
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def calls(node, *names):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


class Function(ast.NodeVisitor):
    """Finds the places in a function where a decision depends on a text for people."""

    def __init__(self):
        self.errors, self.texts, self.lines = set(), set(), []

    def is_text(self, node):
        """Return whether an expression contains the text of an error or a note."""
        if calls(node, "kind_of"):
            return False
        if isinstance(node, ast.Name):
            return node.id in self.texts
        if calls(node, "str", "first_line", "map"):
            if any(isinstance(each, ast.Name) and each.id in self.errors for each in node.args):
                return True
        if isinstance(node, ast.Attribute) and node.attr == "args" and isinstance(node.value, ast.Name):
            return node.value.id in self.errors
        return any(map(self.is_text, ast.iter_child_nodes(node)))

    def bind(self, target, source):
        if isinstance(source, ast.Attribute) and source.attr in ("notes", "remarks"):
            self.texts |= targets(target)
        elif calls(source, "chain") or (calls(source, "list", "reversed") and calls(source.args[0], "chain")):
            self.errors |= targets(target)

    def visit_arg(self, node):
        said = ast.unparse(node.annotation) if node.annotation else ""
        if re.search(r"(Error|Exception)\b", said) and "[" not in said:
            self.errors.add(node.arg)

    def visit_ExceptHandler(self, node):
        self.errors |= {node.name} if node.name else set()
        self.generic_visit(node)

    def visit_Assign(self, node):
        self.generic_visit(node)
        for target in node.targets:
            self.bind(target, node.value)
            if isinstance(target, ast.Name) and not isinstance(node.value, ast.JoinedStr) and self.is_text(node.value):
                self.texts.add(target.id)

    def visit_For(self, node):
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node):
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def comprehended(self, node):
        for each in node.generators:
            self.visit(each)
        self.generic_visit(node)

    visit_GeneratorExp = visit_ListComp = visit_SetComp = comprehended

    def visit_Compare(self, node):
        operands = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, operands, operands[1:]):
            wanted = [right] if isinstance(operator, (ast.In, ast.NotIn)) else [left, right]
            plain = isinstance(operator, (ast.In, ast.NotIn, ast.Eq, ast.NotEq))
            both = all(self.is_text(each) for each in (left, right))  # two texts may be compared with each other
            if plain and not both and any(self.is_text(each) for each in wanted):
                self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node):
        if isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES:
            if self.is_text(node.func.value) or any(map(self.is_text, node.args)):
                self.lines.append(node.lineno)
        self.generic_visit(node)


def lines_of(code, titles):
    """Return the lines of a module where a decision depends on prose."""
    tree, found = ast.parse(code), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = Function()
            function.visit(node)
            found.update(function.lines)
        elif isinstance(node, ast.Constant) and node.value in titles:
            found.add(node.lineno)
    return sorted(found)


def questions(code):
    """Return the number of docstrings in a module, and the lines of those that begin with a question word."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    known = [(node, ast.get_docstring(node)) for node in ast.walk(ast.parse(code)) if isinstance(node, kinds)]
    texts = [(node.body[0].lineno, text) for node, text in known if text]
    return len(texts), [line for line, text in texts if QUESTION.match(text)]


def denials(texts):
    """Return the texts with "is no X" instead of "is not an X". "There is no X" and "is no longer" are right."""
    return [text for text in texts if DENIAL.search(text)]


def texts_of(code):
    """Yield the texts of a module except docstrings, with the lines where they begin."""
    tree = ast.parse(code)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements | inner:
            yield node.lineno, node.value


def texts_of_cpp(code):
    """Yield the texts of a C++ source with the lines where they begin. Adjacent texts are joined."""
    for match in LITERALS.finditer(code):
        if match[0].startswith('"'):
            yield code.count("\n", 0, match.start()) + 1, re.sub(r'"\s*"', "", match[0]).strip()


DENIAL = re.compile(r"(?<!there )\b(?:is|are) no (?!longer|larger|more|less|smaller)[a-z]", re.IGNORECASE)
LITERALS = re.compile(r"""//[^\n]*|(?:"(?:[^"\\\n]|\\.)*"\s*)+|'(?:[^'\\\n]|\\.)*'""")
QUESTION = re.compile(r"(What|Whether|Which|How|Within|Where|Why|When|Who|Whose|Of)\b")
MOST_QUESTIONS = 0.01
SAMPLE = '''
def one(error: Error, kind):
    text = f"{error}"
    told = str(error.args[0])
    if "a layout" in told or kind == "missing" or str(kind) == "x":
        raise error
    return any("x" in str(each) for each in chain(error)), [n for n in r.notes if n.startswith("not")]

def two():
    try:
        pass
    except ValueError as problem:
        return re.search("x", str(problem)) or "weights of an adapter", str(problem).partition("; ")
'''
ROW = re.compile(r'Row\{K::k\w+,\s*"([\w-]*)",\s*((?:"[^"]*"\s*)*)')
rows = ROW.findall((root / "src/base/error_kinds.cc").read_text())
titles = {"".join(re.findall(r'"([^"]*)"', title)) for _, title in rows} - {""}
if lines_of(SAMPLE, titles) != [5, 7, 13] or len(titles) < 25 or not IN_CPP.search('error.message.find("x")'):
    sys.exit(f"the check does not find what it looks for: {lines_of(SAMPLE, titles)}, {len(titles)} titles")

if questions('"""What."""\ndef f():\n    "Return what."') != (2, [1]):
    sys.exit("the check does not find a question")
if denials(["x is no list", "there is no x", "is no longer y"]) != ["x is no list"]:
    sys.exit("the check does not find a denial")
if [*texts_of_cpp('// "a"\nf("b "\n  "c");')] != [(2, '"b c"')]:
    sys.exit("the check does not find the texts of C++")
if [*texts_of('"""D."""\nx = f"a{b} c"')] != [(2, "a{} c")]:
    sys.exit("the check does not find the texts of Python")

places, used, asked, denied, count = [], set(), [], [], 0
for path in sorted(PACKAGE.rglob("*.py")):
    name = path.relative_to(PACKAGE).as_posix()
    found = lines_of(path.read_text(), titles)
    number, lines = questions(path.read_text())
    count, asked = count + number, asked + [f"python/onnx_external/{name}:{line}" for line in lines]
    used |= {name} if found else set()
    places += [f"python/onnx_external/{name}:{line}" for line in found if name not in ALLOWED]
    denied += [f"python/onnx_external/{name}:{line}" for line, text in texts_of(path.read_text()) if denials([text])]
for folder in ("src", "tools", "python/native"):
    for path in sorted([*(root / folder).rglob("*.cc"), *(root / folder).rglob("*.h")]):
        name = path.relative_to(root).as_posix()
        denied += [f"{name}:{line}" for line, text in texts_of_cpp(path.read_text()) if denials([text])]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if IN_CPP.search(line):
                used.add(name)
                places += [f"{name}:{number}"] if name not in ALLOWED else []
print("\n".join(f"{place}: decides by a text; give what it reads a kind" for place in places))
print("\n".join(f"{name}: reads no text any more; take it off the list" for name in sorted(ALLOWED.keys() - used)))

docs = (root / "docs/python.md").read_text()
untold = [name for name, _ in rows if name and f"`{name}`" not in docs]
print("\n".join(f"docs/python.md: no kind `{name}`" for name in untold))
too_many = asked if len(asked) > MOST_QUESTIONS * count else []
print("\n".join(f"{place}: begins with a question; say what it does or is" for place in too_many))
print("\n".join(f'{place}: says "is no"; say "is not a"' for place in denied))
sys.exit(1 if places or untold or too_many or denied or ALLOWED.keys() - used else 0)
