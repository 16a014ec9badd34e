/** The text of a document, as the interface gives it in its JSON format. */
export interface Block {
  block_type: string;
  content: string;
  level: number | null;
  metadata: { page?: number | null; rows?: string[][]; items?: { level: number; text: string }[]; ordered?: boolean };
}

export interface Text {
  content: string;
  blocks: Block[];
  metadata: { title?: string | null; author?: string | null };
}

/** The laid-out text of a result; null where it is of another format. */
export function textOf(result: string): Text | null {
  try {
    const text = JSON.parse(result) as Partial<Text>;
    return Array.isArray(text.blocks) ? { content: text.content ?? '', blocks: text.blocks, metadata: text.metadata ?? {} } : null;
  } catch {
    return null;
  }
}

export interface Page {
  number: number | null;
  blocks: { block: Block; index: number }[];
}

/** The blocks by the pages that they begin on. */
export function pagesOf(blocks: Block[]): Page[] {
  const pages: Page[] = [];
  blocks.forEach((block, index) => {
    const number = block.metadata.page ?? null;
    const last = pages.at(-1);
    if (last && (last.number === number || number === null)) last.blocks.push({ block, index });
    else pages.push({ number, blocks: [{ block, index }] });
  });
  return pages;
}
