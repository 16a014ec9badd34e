"""Writes a TIFF whose frames show the same lines in every coding and kind of pixels that `make test` reads.

Called by samples.py. Pillow codes the faxes; kinds of pixels that it does not write are written here.
"""
import io
import struct
import zlib

from PIL import Image, ImageDraw, ImageFont, ImageOps

WIDTH, HEIGHT = 1240, 600
LINES = ["The points were inspected in spring.", "No defects were found on the drive.", "The next inspection is due in autumn."]
# Types of values, with their letters in `struct`: short, long.
SHORT, LONG = (3, "H"), (4, "I")
BITS, COMPRESSION, KIND, FILL_ORDER, SAMPLES, PLANES, OPTIONS, COLORS, EXTRA = 258, 259, 262, 266, 277, 284, 292, 320, 338
DEFLATE = 8


def write(path):
    page = Image.new("L", (WIDTH, HEIGHT), 255)
    draw = ImageDraw.Draw(page)
    for number, line in enumerate(LINES):
        draw.text((80, 80 + 100 * number), line, font=ImageFont.load_default(44), fill=0)
    path.write_bytes(joined([*faxes(page), *samples(page)]))


def faxes(page):
    """Strips, rows of each, and tags: black on white both ways, and bits of a byte both ways."""
    white_is_zero = fax(ImageOps.invert(page), "group3")
    yield white_is_zero[0], white_is_zero[1], {**white_is_zero[2], KIND: (SHORT, [0])}
    yield fax(page, "group3")
    strips, rows, tags = fax(page, "group3", 1)
    yield strips, rows, {**tags, OPTIONS: (LONG, [1])}
    yield fax(page, "tiff_ccitt")
    strips, rows, tags = fax(page, "group4")
    turned = [bytes(int(f"{byte:08b}"[::-1], 2) for byte in strip) for strip in strips]
    yield turned, rows, {**tags, FILL_ORDER: (SHORT, [2])}


def fax(page, coding, options=None):
    file = io.BytesIO()
    black_and_white = page.point(lambda light: 255 if light > 128 else 0).convert("1")
    black_and_white.save(file, "TIFF", compression=coding, **({"tiffinfo": {OPTIONS: options}} if options else {}))
    tags = Image.open(file).tag_v2
    data = file.getvalue()
    strips = [data[at:at + length] for at, length in zip(tags[273], tags[279])]
    kept = {tag: (SHORT, [tags[tag]]) for tag in (COMPRESSION, KIND)}
    return strips, tags[278], {BITS: (SHORT, [1]), SAMPLES: (SHORT, [1]), **kept}


def samples(page):
    light = list(page.tobytes())
    dark = [255 - value for value in light]
    gray = [255 - 17 * number for number in range(16)]
    yield packed(nibbles(15 - value // 16 for value in light), 3, [4], {COLORS: (SHORT, table([(g, g, 255 - 9 * n) for n, g in enumerate(gray)]))})
    yield packed(dark, 3, [8], {COLORS: (SHORT, table([(255 - number,) * 3 for number in range(256)]))})
    yield packed(nibbles(value // 16 for value in light), 1, [4])
    # Black everywhere, of which nothing is seen where there is no text.
    yield packed((part for value in dark for part in (0, value)), 1, [8, 8], {EXTRA: (SHORT, [2])})
    # White is zero, with a sample that means nothing.
    yield packed((part for value in dark for part in (value, 7)), 0, [8, 8], {EXTRA: (SHORT, [0])})
    yield packed((part for value in dark for part in (0, 0, 0, value)), 5, [8] * 4)
    planes = [bytes(len(dark))] * 3 + [bytes(dark)]
    strips = [zlib.compress(plane, 9) for plane in planes]
    yield strips, HEIGHT, {**packed([], 5, [8] * 4)[2], PLANES: (SHORT, [2])}


def packed(values, kind, bits, more=None):
    tags = {BITS: (SHORT, bits), COMPRESSION: (SHORT, [DEFLATE]), KIND: (SHORT, [kind]), SAMPLES: (SHORT, [len(bits)])}
    return [zlib.compress(bytes(values), 9)], HEIGHT, {**tags, **(more or {})}


def nibbles(values):
    values = list(values)
    return bytes(high << 4 | low for high, low in zip(values[::2], values[1::2]))


def table(colors):
    """All reds, all greens, all blues, with 16 bits each."""
    return [color[part] * 257 for part in range(3) for color in colors]


def joined(frames):
    file, link = bytearray(b"II*\0\0\0\0\0"), 4
    for strips, rows, tags in frames:
        places = []
        for strip in strips:
            places.append(len(file))
            file += strip
        tags = {256: (LONG, [WIDTH]), 257: (LONG, [HEIGHT]), 273: (LONG, places), 278: (LONG, [rows]),
                279: (LONG, [len(strip) for strip in strips]), **tags}
        entries = b""
        for tag, ((number, letter), values) in sorted(tags.items()):
            value = struct.pack(f"<{len(values)}{letter}", *values)
            if len(value) > 4:
                file += bytes(len(file) % 2)
                place = len(file)
                file += value
                value = struct.pack("<I", place)
            entries += struct.pack("<HHI", tag, number, len(values)) + value.ljust(4, b"\0")
        file += bytes(len(file) % 2)
        struct.pack_into("<I", file, link, len(file))
        file += struct.pack("<H", len(tags)) + entries
        link = len(file)
        file += bytes(4)
    return bytes(file)
