export type Box = [number, number, number, number];

export interface Place {
  page: number;
  bbox: Box;
}

export interface Word {
  text: string;
  places: Place[];
  /** 0 to 1 where it was recognised. */
  confidence: number | null;
}

/** The measures of a page in points, after it was turned clockwise by `rotation` degrees. */
export interface PageShape {
  number: number;
  width: number;
  height: number;
  rotation: number;
}

/** The text of a document, as the interface gives it in its JSON format. */
export interface Block {
  block_type: string;
  content: string;
  level: number | null;
  /** On its first page: left, top, right and bottom in points. */
  bbox?: Box | null;
  /** All places of a block that stands in several. */
  places?: Place[];
  words?: Word[];
  metadata: { page?: number | null; rows?: string[][]; items?: { level: number; text: string }[]; ordered?: boolean };
}

export interface Text {
  content: string;
  blocks: Block[];
  pages: PageShape[];
  metadata: { title?: string | null; author?: string | null };
}

/** The laid-out text of a result; null where it is of another format. */
export function textOf(result: string): Text | null {
  try {
    const text = JSON.parse(result) as Partial<Text>;
    return Array.isArray(text.blocks) ? { content: text.content ?? '', blocks: text.blocks, pages: text.pages ?? [], metadata: text.metadata ?? {} } : null;
  } catch {
    return null;
  }
}

export interface Page {
  number: number | null;
  blocks: { block: Block; index: number }[];
}

/** The blocks by the pages that they begin on, and pages without any. */
export function pagesOf({ blocks, pages: shapes }: Text): Page[] {
  const pages: Page[] = [];
  blocks.forEach((block, index) => {
    const number = block.metadata.page ?? null;
    const last = pages.at(-1);
    if (last && (last.number === number || number === null)) last.blocks.push({ block, index });
    else pages.push({ number, blocks: [{ block, index }] });
  });
  const known = new Set(pages.map((page) => page.number));
  const empty = shapes.filter((shape) => !known.has(shape.number)).map(({ number }): Page => ({ number, blocks: [] }));
  return empty.length === 0 ? pages : [...pages, ...empty].sort((one, other) => (one.number ?? 0) - (other.number ?? 0));
}

/** The places of a block on a page. */
export function boxesOn(block: Block, page: number): Box[] {
  if (block.places && block.places.length > 0) return block.places.filter((place) => place.page === page).map((place) => place.bbox);
  return block.bbox && block.metadata.page === page ? [block.bbox] : [];
}

/** Words of which recognition was less sure than this are worth a look. */
export const UNSURE = 0.7;

export interface Piece {
  text: string;
  /** Of an uncertain word. */
  confidence: number | null;
}

/** Finds the uncertain words of a block in its texts, one text after the other. */
export function unsureWords(block: Block): (text: string) => Piece[] {
  const left = (block.words ?? []).filter((word) => word.confidence !== null && word.confidence < UNSURE);
  return (text) => {
    const pieces: Piece[] = [];
    let at = 0;
    for (let next = 0; next < left.length; ) {
      const word = left[next];
      const found = word ? text.indexOf(word.text, at) : -1;
      if (!word || found < 0) {
        next++;
        continue;
      }
      if (found > at) pieces.push({ text: text.slice(at, found), confidence: null });
      pieces.push({ text: word.text, confidence: word.confidence });
      at = found + word.text.length;
      left.splice(next, 1);
    }
    if (at < text.length || pieces.length === 0) pieces.push({ text: text.slice(at), confidence: null });
    return pieces;
  };
}
