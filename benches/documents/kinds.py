"""Kinds of PDFs that are measured apart: forms, text from right to left, and text in columns."""
import json
import sys

import peers

# Letters from right to left, of all letters of a document, at least.
FROM_RIGHT = 0.3
# Pages with two columns, of all pages with text, at least.
COLUMNS = 0.5
FIND = """
import json, re, sys, pymupdf
document = pymupdf.open(sys.argv[1])
values, text, columns, pages = [], "", 0, 0
for page in document:
    values += [str(field.field_value) for field in page.widgets() if field.field_type in (3, 4, 7) and field.field_value]
    text += page.get_text()
    blocks = [block for block in page.get_text("blocks") if block[6] == 0 and len(block[4].split()) >= 8]
    width, middle = page.rect.width, page.rect.x0 + page.rect.width / 2
    sides = [[b for b in blocks if b[2] < middle + 0.02 * width], [b for b in blocks if b[0] > middle - 0.02 * width]]
    beside = [b for b in sides[0] if any(o[1] < b[3] and b[1] < o[3] for o in sides[1])]
    wide = [b for b in blocks if b[0] < middle - 0.1 * width and b[2] > middle + 0.1 * width]
    pages += bool(blocks)
    columns += bool(beside) and min(map(len, sides)) >= 2 and len(wide) <= len(beside)
letters = [letter for letter in text if letter.isalpha()]
right = sum("\u0590" <= letter <= "\u08ff" or "\ufb1d" <= letter <= "\ufefc" for letter in letters)
print(json.dumps({"values": "\\n".join(values), "right": right / max(1, len(letters)), "columns": columns / max(1, pages)}))
"""


def of(document):
    """The kinds of a document and the values of its fields, kept beside it."""
    found = peers.kept(document, ".kinds.txt", [sys.executable, "-c", FIND, document.file]).strip().splitlines()
    known = json.loads(found[-1] if found else "{}")
    tests = {"forms": known.get("values"), "right to left": known.get("right", 0) >= FROM_RIGHT,
             "columns": known.get("columns", 0) >= COLUMNS}
    return {"kinds": [kind for kind, is_one in tests.items() if is_one], "values": known.get("values", "")}
