"""Makes the small documents that `make test` reads, in tests/documents/: run it only to change them.

    python3 -m pip install reportlab pikepdf python-docx openpyxl python-pptx Pillow
    python3 benches/documents/samples.py

Open documents and sheets of before 2007 are made of the others by LibreOffice (`soffice`).
"""
import email.message
import pathlib
import subprocess
import tempfile
import zipfile

import pdfs
import tiffs

HERE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "documents"
REPORT = [
    {"kind": "heading", "level": 1, "text": "Prüfbericht der Weiche"},
    {"kind": "paragraph", "text": "Die Weiche 12 wurde im Frühjahr geprüft. Der Antrieb läuft ruhig, die Zungen liegen an, und "
     "die Überwachung der Endlage meldet zuverlässig. Eine Instandsetzung ist nicht erforderlich."},
    {"kind": "heading", "level": 2, "text": "1 Umfang"},
    {"kind": "list", "ordered": False, "items": [{"level": 0, "text": "Antrieb und Verschluss"},
                                                 {"level": 0, "text": "Zungen und Backenschienen"}]},
    {"kind": "heading", "level": 2, "text": "2 Messwerte"},
    {"kind": "table", "ruled": True, "rows": [["Größe", "Wert", "Grenze"], ["Stellzeit", "4,2 s", "6,0 s"],
                                              ["Stellkraft", "2,8 kN", "4,5 kN"]]},
    {"kind": "heading", "level": 2, "text": "3 Ergebnis"},
    {"kind": "list", "ordered": True, "items": [{"level": 0, "text": "Keine Mängel"}, {"level": 0, "text": "Nächste Prüfung im Herbst"}]},
]
LEFT = ("The left column comes first. It tells of the morning train, which leaves the yard before dawn and climbs the long "
        "grade to the tunnel, where the signal stands at clear. Nobody waits on the platform at this hour. ") * 3
RIGHT = ("The right column comes second. It tells of the evening train, which returns with the mail and the milk, and stops "
         "at every halt along the river. The lamps are lit, and the crossing bell rings twice. ") * 3
COLUMNS = [{"kind": "heading", "level": 1, "text": "Two Trains"}, {"kind": "paragraph", "text": LEFT.strip()},
           {"kind": "paragraph", "text": RIGHT.strip()}]


def main():
    import docx
    import openpyxl
    import pikepdf
    import pptx
    HERE.mkdir(exist_ok=True)
    pdfs.load_fonts()
    pdfs.write(HERE / "report.pdf", REPORT, family="sans", header="Signalbox Werk 7")
    pdfs.write(HERE / "columns.pdf", COLUMNS, columns=2, family="serif")
    with pikepdf.open(HERE / "report.pdf") as pdf:
        pdf.save(HERE / "encrypted.pdf", encryption=pikepdf.Encryption(owner="owner", user="user"))
    whole = (HERE / "report.pdf").read_bytes()
    (HERE / "truncated.pdf").write_bytes(whole[:600])
    scan(HERE)
    letter = docx.Document()
    letter.add_heading("Brief", 1)
    letter.add_paragraph("Sehr geehrte Damen und Herren,")
    letter.add_paragraph("erstens", style="List Bullet")
    table = letter.add_table(rows=1, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Posten", "Preis"
    letter.save(HERE / "letter.docx")
    book = openpyxl.Workbook()
    book.active.title = "Werte"
    for row in (["Gleis", "Länge"], ["1", 350.5]):
        book.active.append(row)
    book.save(HERE / "sheet.xlsx")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "Überblick", "Erster Punkt"
    show.save(HERE / "slides.pptx")
    mail = email.message.EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Anna <anna@example.org>", "werk@example.org", "Störung an Gleis 3"
    mail.set_content("Guten Morgen,\n\ndas Signal bleibt dunkel.\n")
    mail.add_attachment(b"x", maintype="application", subtype="octet-stream", filename="foto.bin")
    (HERE / "mail.eml").write_bytes(bytes(mail))
    converted()
    book_of_two_chapters()
    turned()
    tiffs.write(HERE / "kinds.tiff")
    shadow()
    bomb()


def shadow():
    """A page of which one half lies in the shadow of its photographer."""
    from PIL import Image, ImageChops, ImageDraw, ImageFilter
    page = Image.open(HERE / "scan.png").convert("L")
    light = Image.new("L", page.size, 255)
    ImageDraw.Draw(light).rectangle((0, 0, page.width // 2, page.height), fill=90)
    light = light.filter(ImageFilter.GaussianBlur(page.width // 60))
    ImageChops.multiply(page, light).save(HERE / "shadow.jpg", quality=45, optimize=True, dpi=(200, 200))


def converted():
    """Open documents, and sheets of before 2007."""
    for name, kind in (("letter.docx", "odt"), ("sheet.xlsx", "ods"), ("sheet.xlsx", "xls"), ("slides.pptx", "odp")):
        subprocess.run(["soffice", "--headless", "--convert-to", kind, "--outdir", HERE, HERE / name], check=True)


def book_of_two_chapters():
    chapter = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{0}</title></head><body><h1>{0}</h1>{1}</body></html>'
    with zipfile.ZipFile(HERE / "book.epub", "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        book.writestr("META-INF/container.xml", '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
                      '<rootfiles><rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles>'
                      '</container>')
        book.writestr("OEBPS/content.opf", '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
                      'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Weichen</dc:title><dc:creator>Anna</dc:creator>'
                      '</metadata><manifest><item id="b" href="zwei%20b.xhtml" media-type="application/xhtml+xml"/>'
                      '<item id="a" href="eins.xhtml" media-type="application/xhtml+xml"/></manifest>'
                      '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>')
        book.writestr("OEBPS/zwei b.xhtml", chapter.format("Zweitens", "<ol><li>Signal</li><li>Gleis</li></ol>"))
        book.writestr("OEBPS/eins.xhtml", chapter.format("Erstens", "<p>Die Weiche liegt <b>an</b>.</p>"))


def bomb():
    """A small file that unpacks to 70 MB."""
    with zipfile.ZipFile(HERE / "bomb.docx", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", b"<w:document>" + b" " * 70_000_000)


def turned():
    """The report as a picture that lies on its side or on its head: in a PDF, in a TIFF, and as a camera stores it."""
    from PIL import Image, TiffImagePlugin
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["pdftoppm", "-r", "300", "-mono", "-png", HERE / "report.pdf", f"{work}/page"], check=True)
        page = Image.open(next(pathlib.Path(work).glob("*.png"))).convert("1")
    page = page.crop((0, 260, page.width, 1400))
    pages = [page.transpose(turn) for turn in (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)]
    pages[0].save(HERE / "turned.pdf", save_all=True, append_images=pages[1:], resolution=300)
    # Three frames: bits, shades, and bits that say how they have to be turned (tag 274: the first row is at the right).
    tiff = TiffImagePlugin.AppendingTiffWriter(HERE / "frames.tiff", new=True)
    shades = page.convert("L").resize((page.width // 2, page.height // 2))
    for frame, compression, orientation in ((page, "group4", 1), (shades, "tiff_lzw", 1), (pages[0], "group4", 6)):
        frame.save(tiff, format="TIFF", compression=compression, dpi=(300, 300), tiffinfo={274: orientation})
        tiff.newFrame()
    tiff.close()
    exif = Image.Exif()
    exif[274] = 6
    pages[0].convert("L").resize((pages[0].width // 2, pages[0].height // 2)).save(HERE / "camera.jpg", quality=40, exif=exif)


def scan(folder):
    """A page without a letter of text: the report as a picture, as a PDF and alone."""
    from PIL import Image
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["pdftoppm", "-r", "150", "-gray", "-png", folder / "report.pdf", f"{work}/page"], check=True)
        page = Image.open(next(pathlib.Path(work).glob("*.png")))
        page = page.crop((0, 130, page.width, 700)).quantize(8)
        page.save(folder / "scan.png", optimize=True, dpi=(150, 150))
        page.convert("L").save(folder / "scan.pdf", resolution=150)


if __name__ == "__main__":
    main()
