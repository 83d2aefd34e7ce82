"""The tables of hidden cells, put into the cells.

A source notebook says `table=hidden(3)`; the gradebook holds the table itself, as one line of text.
So a kernel that grades needs tinylm and nothing of the instructor's. From what learners get,
nbgrader takes out what stands between the marks; from what they get back, `feedback` does.
"""

import re

from nbgrader.preprocessors import NbGraderPreprocessor

from autograde.hidden import hidden
from autograde.sources import SourceError
from tinylm.checks import pack

IMPORT = "from autograde.hidden import hidden\n\n"
CALL = re.compile(r'check\((?P<fn>\w+), "(?P<name>\w+)", table=hidden\((?P<task>\d)\)\)')


class InlineTables(NbGraderPreprocessor):
    """Before a release: the packed table in place of `hidden(task)`, in every hidden cell.

    Raises SourceError for a hidden cell in another form, which no kernel without this package runs.
    """

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "code" and "hidden(" in cell.source:
            text, count = CALL.subn(_with_table, cell.source.replace(IMPORT, ""))
            if count != 1 or "hidden(" in text or "autograde" in text:
                raise SourceError(f"cell {cell.get('id')!r} is to say {IMPORT.strip()!r}, leave a "
                                  'line free, and say check(NAME, "CHECK", table=hidden(TASK)).')
            cell.source = text
        return cell, resources


def _with_table(call):
    table = pack(_only(hidden(int(call["task"])), call["name"]))
    return f'check({call["fn"]}, "{call["name"]}", table={table!r})'


def _only(table, name):
    """What one check needs to tell right from wrong; names of mistakes are not for hidden cells."""
    cases = [{**case, "mistakes": {}} for case in table["checks"][name]["cases"]]
    return {**table, "mistakes": {}, "checks": {name: {**table["checks"][name], "cases": cases}}}
