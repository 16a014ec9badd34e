"""Documents whose truth is known: headings, paragraphs, lists and tables, made up from word lists by a seeded draw.

A document is a list of blocks, each a dict with "kind":
    heading    level, text
    paragraph  text
    list       ordered, items: [{level, text}]
    table      rows: [[cell]], the first of them the head; ruled: bool
    footnote   text
    page       a page break
"""
import random

GERMAN = """Anlage Antrag Aufsicht Ausgabe Bahnhof Behörde Bericht Betrieb Brücke Dienst Entwurf Fahrplan Fläche Frist
Gebäude Gemeinde Gleis Größe Grundstück Höhe Kosten Kreis Leitung Maßnahme Messung Mitarbeiter Ordnung Planung Prüfung
Quelle Rahmen Rechnung Richtlinie Schutz Signal Straße Strecke Stunde Übergang Überwachung Umfang Unterlage Verfahren
Verkehr Vertrag Wartung Weiche Zeitraum Zustand Zuständigkeit Änderung Öffnung""".split()
GERMAN_LONG = """Genehmigungsverfahren Sicherheitsüberprüfung Verwaltungsvorschrift Betriebsanweisung Geschwindigkeitsbegrenzung
Umweltverträglichkeit Streckenabschnitt Zusammenarbeit Wiederherstellung Instandhaltungsarbeiten""".split()
GERMAN_SMALL = """der die das und mit für bei nach über unter gegen ohne durch wird wurde werden ist sind kann muss soll
außerdem häufig künftig während jährlich zusätzlich regelmäßig nur noch bereits dabei hierzu deshalb""".split()
ENGLISH = """account agreement analysis annex area authority balance bridge budget building capacity change chapter
circuit committee condition contract control crossing decision delay delivery design detail device district document
effect engine evidence failure figure function ground height history increase inspection journey junction latitude
level limit maintenance manager measure method network notice object office operation option order outcome passenger
pattern period platform process project quality railway reason record region report result route schedule section
sensor service signal station status structure summary survey switch system table target timetable track traffic
transfer transport tunnel value vehicle volume weight window""".split()
ENGLISH_LONG = """administration classification communication documentation infrastructure interpretation
recommendation representation responsibility transportation""".split()
ENGLISH_SMALL = """the a of and to in is was for with on by from at as are were may must should will often also however
therefore within during between under over each every first second""".split()


class Writer:
    """Makes up text in one language."""

    def __init__(self, language, seed):
        self.draw = random.Random(f"{language} {seed}")
        self.language = language
        self.words, self.long, self.small = {
            "deu": (GERMAN, GERMAN_LONG, GERMAN_SMALL),
            "eng": (ENGLISH, ENGLISH_LONG, ENGLISH_SMALL),
        }[language]

    def word(self):
        chance = self.draw.random()
        if chance < 0.45:
            return self.draw.choice(self.small)
        return self.draw.choice(self.long if chance > 0.92 else self.words)

    def sentence(self, fewest=6, most=16):
        words = [self.word() for _ in range(self.draw.randint(fewest, most))]
        if self.draw.random() < 0.2:
            words.insert(len(words) // 2, str(self.draw.randint(2, 9999)))
        if self.draw.random() < 0.3:
            words[len(words) // 3] += ","
        words[0] = words[0][0].upper() + words[0][1:]
        return " ".join(words) + "."

    def paragraph(self, fewest=3, most=7):
        return " ".join(self.sentence() for _ in range(self.draw.randint(fewest, most)))

    def title(self, fewest=2, most=5):
        words = [self.draw.choice(self.words) for _ in range(self.draw.randint(fewest, most))]
        if self.language == "eng":
            words = [word.capitalize() for word in words]
        return " ".join(words)

    def phrase(self, fewest=3, most=8):
        words = [self.word() for _ in range(self.draw.randint(fewest, most))]
        words[0] = words[0][0].upper() + words[0][1:]
        return " ".join(words)

    def list(self, ordered):
        items = []
        for _ in range(self.draw.randint(3, 6)):
            items.append({"level": 0, "text": self.phrase(3, 18)})
            if not ordered and self.draw.random() < 0.25:
                items += [{"level": 1, "text": self.phrase(3, 6)} for _ in range(2)]
        return {"kind": "list", "ordered": ordered, "items": items}

    def table(self, ruled):
        columns = self.draw.randint(3, 5)
        head = [self.draw.choice(self.words).capitalize() for _ in range(columns)]
        rows = [head]
        for _ in range(self.draw.randint(3, 8)):
            row = [self.phrase(1, 2)]
            row += [self.cell() for _ in range(columns - 1)]
            rows.append(row)
        return {"kind": "table", "rows": rows, "ruled": ruled}

    def cell(self):
        kind = self.draw.random()
        if kind < 0.5:
            return f"{self.draw.randint(1, 99999) / 100:.2f}"
        return str(self.draw.randint(1, 9999)) if kind < 0.7 else self.draw.choice(self.words)


def report(language, seed, chapters=2, footnotes=True):
    """A report with headings of three levels, lists and tables."""
    writer = Writer(language, seed)
    blocks = [{"kind": "heading", "level": 1, "text": writer.title()}]
    blocks.append({"kind": "paragraph", "text": writer.paragraph()})
    for chapter in range(1, chapters + 1):
        blocks.append({"kind": "heading", "level": 2, "text": f"{chapter} {writer.title()}"})
        blocks.append({"kind": "paragraph", "text": writer.paragraph()})
        for section in range(1, writer.draw.randint(2, 3) + 1):
            blocks.append({"kind": "heading", "level": 3, "text": f"{chapter}.{section} {writer.title()}"})
            blocks.append({"kind": "paragraph", "text": writer.paragraph()})
            extra = writer.draw.random()
            if extra < 0.35:
                blocks.append(writer.list(ordered=writer.draw.random() < 0.5))
            elif extra < 0.75:
                blocks.append(writer.table(ruled=writer.draw.random() < 0.6))
            blocks.append({"kind": "paragraph", "text": writer.paragraph()})
        if footnotes and chapter % 2 == 0:
            blocks.append({"kind": "footnote", "text": f"{chapter} {writer.sentence()}"})
    return blocks


def article(language, seed, sections=5):
    """Text in two columns: headings and paragraphs."""
    writer = Writer(language, seed)
    blocks = [{"kind": "heading", "level": 1, "text": writer.title(3, 6)}]
    for _ in range(sections):
        blocks.append({"kind": "heading", "level": 2, "text": writer.title()})
        blocks += [{"kind": "paragraph", "text": writer.paragraph(4, 8)} for _ in range(writer.draw.randint(2, 4))]
    return blocks


def book(language, seed, pages):
    """Plain text of about `pages` pages, with a heading every eight pages."""
    writer = Writer(language, seed)
    blocks = [{"kind": "heading", "level": 1, "text": writer.title()}]
    for page in range(pages):
        if page % 8 == 0:
            blocks.append({"kind": "heading", "level": 2, "text": f"{page // 8 + 1} {writer.title()}"})
        # The first page has the title, too.
        blocks += [{"kind": "paragraph", "text": writer.paragraph(5, 7)} for _ in range(8 if page else 6)]
    return blocks
