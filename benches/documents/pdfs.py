"""Writes documents of known truth as PDF, with reportlab: one column or two, with running headers and page numbers."""
from reportlab.lib.enums import TA_JUSTIFY
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.lib import colors
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import (BaseDocTemplate, Frame, ListFlowable, ListItem, NextPageTemplate, PageBreak, PageTemplate,
                                Paragraph, Spacer, Table, TableStyle)
from reportlab.platypus.doctemplate import FrameBreak

FONTS = {
    "serif": ("LiberationSerif", "/usr/share/fonts/truetype/liberation/LiberationSerif-"),
    "sans": ("LiberationSans", "/usr/share/fonts/truetype/liberation/LiberationSans-"),
}


def load_fonts():
    for family, path in FONTS.values():
        for style in ("Regular", "Bold", "Italic"):
            pdfmetrics.registerFont(TTFont(f"{family}-{style}", f"{path}{style}.ttf"))


def styles(family, size, hyphens):
    regular, bold = f"{FONTS[family][0]}-Regular", f"{FONTS[family][0]}-Bold"
    body = ParagraphStyle("body", fontName=regular, fontSize=size, leading=size * 1.25, spaceAfter=size * 0.6,
                          alignment=TA_JUSTIFY, hyphenationLang=hyphens, hyphenationMinWordLength=6)
    found = {"body": body}
    for level, scale in ((1, 1.8), (2, 1.4), (3, 1.15)):
        found[level] = ParagraphStyle(f"h{level}", fontName=bold, fontSize=size * scale, leading=size * scale * 1.2,
                                      spaceBefore=size, spaceAfter=size * 0.6, keepWithNext=1)
    found["item"] = ParagraphStyle("item", parent=body, alignment=0, spaceAfter=size * 0.2)
    found["cell"] = ParagraphStyle("cell", parent=body, alignment=0, spaceAfter=0)
    found["note"] = ParagraphStyle("note", parent=body, fontSize=size * 0.8, leading=size)
    return found


def flow(blocks, style):
    for block in blocks:
        kind = block["kind"]
        if kind == "heading":
            yield Paragraph(block["text"], style[block["level"]])
        elif kind == "paragraph":
            yield Paragraph(block["text"], style["body"])
        elif kind == "footnote":
            yield Paragraph(block["text"], style["note"])
        elif kind == "list":
            yield list_of(block, style)
            yield Spacer(1, 6)
        elif kind == "table":
            yield table_of(block, style)
            yield Spacer(1, 10)
        elif kind == "page":
            yield PageBreak()


def list_of(block, style):
    bullet = "1" if block["ordered"] else "bullet"
    items, nested = [], []

    def close():
        if nested:
            inner = [ListItem(Paragraph(text, style["item"])) for text in nested]
            items.append(ListFlowable(inner, bulletType="bullet", start="–", leftIndent=14))
            nested.clear()

    for item in block["items"]:
        if item["level"]:
            nested.append(item["text"])
        else:
            close()
            items.append(ListItem(Paragraph(item["text"], style["item"])))
    close()
    more = {"bulletFormat": "%s."} if block["ordered"] else {"start": "•"}
    return ListFlowable(items, bulletType=bullet, leftIndent=18, **more)


def table_of(block, style):
    rows = [[Paragraph(cell, style["cell"]) for cell in row] for row in block["rows"]]
    table = Table(rows, hAlign="LEFT", repeatRows=1)
    look = [("VALIGN", (0, 0), (-1, -1), "TOP")]
    if block["ruled"]:
        look.append(("GRID", (0, 0), (-1, -1), 0.5, colors.black))
    table.setStyle(TableStyle(look))
    return table


def write(path, blocks, columns=1, family="serif", size=10.5, hyphens=None, header=None, language="deu"):
    """Writes `blocks` to `path`; a heading of level 1 at the start spans both columns."""
    style = styles(family, size, hyphens)
    width, height = A4
    margin, gap = 22 * mm, 8 * mm
    inner = width - 2 * margin

    def decorate(canvas, document):
        canvas.setFont(f"{FONTS[family][0]}-Regular", 9)
        if header:
            canvas.drawString(margin, height - 14 * mm, header)
            canvas.drawRightString(width - margin, 12 * mm, f"{'Seite' if language == 'deu' else 'Page'} {document.page}")

    def frames(top):
        column = (inner - gap * (columns - 1)) / columns
        return [Frame(margin + index * (column + gap), margin, column, height - 2 * margin - top, 0, 0, 0, 0)
                for index in range(columns)]

    story = list(flow(blocks, style))
    templates = [PageTemplate("later", frames(0), onPage=decorate)]
    if columns > 1:
        title = Frame(margin, height - margin - 24 * mm, inner, 24 * mm, 0, 0, 0, 0)
        templates.insert(0, PageTemplate("first", [title, *frames(26 * mm)], onPage=decorate))
        story = [NextPageTemplate("later"), story[0], FrameBreak(), *story[1:]]
    document = BaseDocTemplate(str(path), pagesize=A4, pageTemplates=templates, title=blocks[0]["text"],
                               author="Signalbox", invariant=1)
    document.build(story)
