"""From a notebook cell to a section of a lab file: source text in, source text out.

A cell holds more than the function that is kept: trials, prints, a plot. What goes along is found
by names: the function, then whatever the cell binds that it reads, and so on. Nothing is run, no
file is touched, and what cannot be seen in the source (eval, globals()) is not seen here.
"""

import ast
import builtins
import copy
import pkgutil
import re
import symtable

SECTION = re.compile(r"^# ={10,} (.*)$", re.MULTILINE)      # "# ====== Task 2", "# ====== given"
IMPORTS = (ast.Import, ast.ImportFrom)
BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IN_EVERY_FILE = {"__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__"}
NOTEBOOK_ONLY = {"display", "get_ipython"}   # builtins only where IPython runs


def with_section(text, number, body):
    """The lab file `text` with `body` as its section of Task `number`.

    Returns None where not exactly one line marks that section.
    """
    marks = list(SECTION.finditer(text))
    mine = [i for i, mark in enumerate(marks) if mark[1].split()[:2] == ["Task", str(number)]]
    if len(mine) != 1:
        return None
    before = text[:marks[mine[0]].end()]
    after = text[marks[mine[0] + 1].start():] if mine[0] + 1 < len(marks) else ""
    return f"{before}\n{body}\n" + (f"\n\n{after}" if after else "")


def definition_of(name, body):
    """The last function `name` at the left margin, or None."""
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[-1] if found else None


def is_stub(definition):
    """Whether the function only ever comes to a NotImplementedError, as a given stub does."""
    for node in definition.body:
        if isinstance(node, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
        if any(isinstance(inner, ast.Return) for inner in ast.walk(node)):
            return False
    return False


def signature(definition):
    """The arguments as written, without annotations: those are the learner's own business."""
    arguments = copy.deepcopy(definition.args)
    for node in ast.walk(arguments):
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(arguments)


# ------------------------------------------------------------ what goes along

def needed(definition, body, elsewhere):
    """The statements of the cell that the function needs, itself among them, in their order.

    Args:
        definition: the function.
        body: all statements of the cell.
        elsewhere: names of functions that have a section of their own; they are left out.
    """
    chosen, names = {definition}, used([definition]) | {definition.name}
    candidates = [node for node in body if not isinstance(node, ast.Expr)
                  and not (isinstance(node, ast.FunctionDef) and node.name in elsewhere)
                  and not _is_true_in_lab(node)]
    while more := [node for node in candidates if node not in chosen and names & _touched(node)]:
        chosen.update(more)
        names |= used(more)
    return [node for node in body if node in chosen]


def _is_true_in_lab(node):
    """`from lab import k3_kl` says nothing inside of lab.py."""
    return (isinstance(node, ast.ImportFrom) and node.module == "lab"
            and all(alias.asname is None for alias in node.names))


def _touched(node):
    """The names that a statement binds, or changes through an item or attribute: x in x[0] = 1."""
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        return stars([node])
    names = bound([node])
    if isinstance(node, BLOCKS):
        return names
    for target in ast.walk(node):
        if isinstance(target, ast.Attribute | ast.Subscript) and isinstance(target.ctx, ast.Store):
            while isinstance(target, ast.Attribute | ast.Subscript):
                target = target.value
            if isinstance(target, ast.Name):
                names.add(target.id)
    return names


def text_of(statements, body, source):
    """The source of some statements of a cell, with the comments inside and right above them."""
    lines = source.splitlines()
    shared = _shared_lines(body)
    text = ""
    for i, node in enumerate(statements):
        first, last = _span(node)
        if shared & set(range(first, last + 1)):             # a = 1; print(a)
            part = ast.get_source_segment(source, node)
        else:
            while first > 1 and _is_comment(lines[first - 2]):
                first -= 1
            part = "\n".join(lines[first - 1:last])
        if i:
            near = isinstance(node, BLOCKS) or isinstance(statements[i - 1], BLOCKS)
            text += "\n\n\n" if near else "\n"
        text += part
    return text


def _is_comment(line):
    return line.startswith("#") and not SECTION.match(line)


def _shared_lines(body):
    """The lines on which more than one statement stands."""
    seen, shared = set(), set()
    for node in body:
        first, last = _span(node)
        span = set(range(first, last + 1))
        shared |= span & seen
        seen |= span
    return shared


def _span(node):
    """First and last line of a statement, its decorators among them."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(line.lineno for line in decorators)]), node.end_lineno


# ------------------------------------------------------------ names

def bound(body):
    """The names that top-level statements bind."""
    return _symbols(body)[0]


def used(body):
    """The global names that top-level statements read, inside of their functions too."""
    return _symbols(body)[1]


def known(body):
    """The names that a file of these statements can use: its own, and those of every file."""
    return (bound(body) | stars(body) | set(dir(builtins)) | IN_EVERY_FILE) - NOTEBOOK_ONLY


def stars(body):
    """The names that `from somewhere import *` brings."""
    modules = [node.module for node in body if isinstance(node, ast.ImportFrom)
               and node.names[0].name == "*" and node.module != "lab"]
    return {name for module in modules for name in dir(_object(module))}


def _symbols(body):
    """(bound, used) of the top level that these statements make."""
    top = symtable.symtable(ast.unparse(ast.Module(list(body), [])), "lab.py", "exec")
    names = {symbol.get_name() for symbol in top.get_symbols()
             if symbol.is_assigned() or symbol.is_imported()}
    reads = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    inner = list(top.get_children())
    while inner:
        table = inner.pop()
        inner += table.get_children()
        reads |= {symbol.get_name() for symbol in table.get_symbols()
                  if symbol.is_global() and symbol.is_referenced()}
    return names, reads


def clashes(section, rest):
    """Names that two parts of one file bind to different things, in order.

    An imported name stands for the object that is imported, any other for the source that binds it.
    """
    here, there = _meanings(section), _meanings(rest)
    return sorted(name for name in here.keys() & there.keys() - {"*"}
                  if here[name] is not there[name] and not _same_text(here[name], there[name]))


def _same_text(one, other):
    return isinstance(one, str) and isinstance(other, str) and one == other


def _meanings(body):
    meanings = {}
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                path = alias.name if alias.asname else alias.name.split(".")[0]
                meanings[alias.asname or path] = _object(path)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names if node.module != "lab" else ():
                meanings[alias.asname or alias.name] = _object(f"{node.module}.{alias.name}")
        else:
            meanings |= dict.fromkeys(bound([node]), ast.dump(node))
    return meanings


def _object(path):
    """What a dotted name stands for; the name itself if that is not known before it is run."""
    if path.split(".")[0] == "lab":          # the file in question
        return path
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError):
        return path
