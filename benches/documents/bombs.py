"""Documents that are made to do harm, each with the statuses that are right for it."""
import io
import struct
import zipfile
import zlib

ENTITIES = ("<!DOCTYPE d [<!ENTITY a0 'ha'>" + "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 10))
            + "]><w:document><w:body><w:p><w:r><w:t>&a9;</w:t></w:r></w:p></w:body></w:document>")
SPACES = b" " * 200_000_000


def all_of_them(samples):
    """Name, bytes and the statuses that may be answered; `samples` is the folder of documents to spoil."""
    sample = {path.name: path.read_bytes() for path in samples.iterdir()}
    yield "empty.pdf", b"", {400}
    yield "program.pdf", b"\x7fELF\x02\x01\x01" + bytes(5000), {415}
    yield "wrong-extension.docx", sample["report.pdf"], {200}
    yield "encrypted.pdf", sample["encrypted.pdf"], {422}
    yield "encrypted.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le"), {422}
    # A sheet without its directory does not show the kind of compound file that it was.
    yield "truncated-sheet.xls", sample["sheet.xls"][:2000], {415}
    for name in ("report.pdf", "letter.docx", "sheet.xlsx", "slides.pptx", "letter.odt", "book.epub", "frames.tiff", "scan.png"):
        yield f"truncated-{name}", sample[name][:len(sample[name]) // 3], {422}
    yield "zip.docx", archive({"[Content_Types].xml": b"<Types/>", "word/document.xml": b"<w:document>" + SPACES}), {422}
    yield "zip.xlsx", spoilt(sample["sheet.xlsx"], "xl/worksheets/sheet1.xml", b"<worksheet><sheetData>" + SPACES), {200, 422}
    yield "zip.odt", spoilt(sample["letter.odt"], "content.xml", b"<office:document>" + SPACES), {422}
    yield "zip.epub", spoilt(sample["book.epub"], "OEBPS/eins.xhtml", b"<html><p>" + SPACES), {422}
    yield "entities.docx", archive({"word/document.xml": ENTITIES.encode()}), {200}
    yield "entities.xlsx", spoilt(sample["sheet.xlsx"], "xl/workbook.xml", ENTITIES.encode()), {200, 422}
    yield "deep.docx", archive({"word/document.xml": b"<w:document>" + b"<w:p>" * 1_000_000}), {422}
    yield "deep.html", b"<!doctype html>" + b"<div>" * 1_000_000, {422}
    yield "deep.rtf", b"{\\rtf1" + b"{" * 1_000_000, {422}
    yield "deep.pdf", pdf("<</Type/Catalog/Pages 2 0 R/X " + "[" * 100_000 + "]" * 100_000 + ">>", "<</Type/Pages/Count 0/Kids[]>>"), {422}
    yield "endless-pages.pdf", pdf("<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Count 2000000000/Kids[2 0 R 2 0 R]>>"), {422}
    yield "many-pages.pdf", pdf("<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Count 200000/Kids[{'3 0 R ' * 200_000}]>>",
                                "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>"), {422}
    yield "flate.pdf", page("", zlib.compress(zlib.compress(bytes(1_000_000_000), 9), 9), "/Filter[/FlateDecode/FlateDecode]"), {200, 422}
    yield "huge-image.pdf", image_page(60_000), {200, 422}
    yield "huge.png", png(60_000, b""), {422}
    yield "large.png", png(14_000, zlib.compress(bytes(14_001 * 14_000), 9)), {200, 422, 504}
    yield "too-large.txt", b"a" * ((100 << 20) + 1), {413}


def archive(parts):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return target.getvalue()


def spoilt(document, name, content):
    """`document` with another content of its part `name`."""
    with zipfile.ZipFile(io.BytesIO(document)) as file:
        parts = {known: file.read(known) for known in file.namelist()}
    assert name in parts, f"{name} is not among {list(parts)}"
    return archive({**parts, name: content})


def pdf(*objects):
    """A PDF of these objects, numbered from 1; the first is its catalogue."""
    text, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(text))
        text += f"{number} 0 obj".encode() + (content.encode() if isinstance(content, str) else content) + b"endobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    return (text + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer<</Size {len(objects) + 1}/Root 1 0 R>>\n"
            f"startxref\n{len(text)}\n%%EOF".encode())


def stream(entries, content):
    return f"<<{entries}/Length {len(content)}>>stream\n".encode() + content + b"\nendstream "


def page(resources, content, filters="", *more):
    return pdf("<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Count 1/Kids[3 0 R]>>",
               f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<<{resources}>>>>",
               stream(filters, content), *more)


def image_page(side):
    pixels = stream(f"/Type/XObject/Subtype/Image/Width {side}/Height {side}/BitsPerComponent 8/ColorSpace/DeviceGray"
                    "/Filter/FlateDecode", zlib.compress(bytes(100_000_000), 9))
    return page("/XObject<</I 5 0 R>>", b"595 0 0 842 0 0 cm /I Do", "", pixels)


def png(side, pixels):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
