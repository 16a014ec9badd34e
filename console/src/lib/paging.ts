/** Lists whose first pages are shown, and more of them as they are asked for. */
interface Page<Item> { data: Item[]; total: number }
interface Numbered { page: number; page_size: number }
interface Range { limit: number; offset: number }
/** Something in a list by what names it, which a version of a history has only within it. */
type Listed = { public_id: string } | { id: string | number } | { version: number };

/** The most items that the interface gives in one page. */
export const PAGE = 100;
/** The most rows of a list that is asked for by `limit` and `offset`. */
export const ROWS = 500;
/** Items of a list that are shown at most: a longer one is filtered rather than scrolled. */
export const MOST = 2_000;

/** How many items are shown after `shown`, when more are asked for. */
export function grown(shown: number): number {
  return Math.min(MOST, (Math.floor(shown / PAGE) + 1) * PAGE);
}

/** The first `count` items of a list in numbered pages: part of a page, or whole pages. */
export function firstItems<Item extends Listed>(count: number, load: (page: Numbered) => Promise<Page<Item>>): Promise<Page<Item>> {
  return first(count, Math.min(count, PAGE), (index, size) => load({ page: index + 1, page_size: size }));
}

/** The first `count` rows of a list that is asked for by `limit` and `offset`. */
export function firstRows<Item extends Listed>(count: number, load: (range: Range) => Promise<Page<Item>>): Promise<Page<Item>> {
  return first(count, Math.min(count, ROWS), (index, size) => load({ limit: size, offset: index * size }));
}

async function first<Item extends Listed>(count: number, size: number, load: (index: number, size: number) => Promise<Page<Item>>): Promise<Page<Item>> {
  const begin = await load(0, size);
  const others = Math.min(Math.ceil(count / size), Math.ceil(begin.total / size)) - 1;
  const rest = await Promise.all(Array.from({ length: Math.max(0, others) }, (_, index) => load(index + 1, size)));
  // An addition between two requests moves an item to the next page, where it is found again.
  const items = new Map([begin, ...rest].flatMap(({ data }) => data).map((item) => [nameOf(item), item]));
  return { data: [...items.values()].slice(0, count), total: begin.total };
}

function nameOf(item: Listed): string | number {
  return 'public_id' in item ? item.public_id : 'id' in item ? item.id : item.version;
}
