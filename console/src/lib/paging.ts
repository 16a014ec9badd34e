/** Lists whose first pages are shown, and more of them as they are asked for. */
interface Page<Item> { data: Item[]; total: number }
interface Numbered { page: number; page_size: number }

/** The most items that the interface gives in one page. */
export const PAGE = 100;
/** Items of a list that are shown at most: a longer one is filtered rather than scrolled. */
export const MOST = 2_000;

/** How many items are shown after `shown`, when more are asked for. */
export function grown(shown: number): number {
  return Math.min(MOST, (Math.floor(shown / PAGE) + 1) * PAGE);
}

/** The first `count` items of a list: part of a page, or whole pages. */
export async function firstItems<Item extends { public_id: string } | { id: string }>(
  count: number, load: (page: Numbered) => Promise<Page<Item>>,
): Promise<Page<Item>> {
  const size = Math.min(count, PAGE);
  const first = await load({ page: 1, page_size: size });
  const others = Math.min(Math.ceil(count / size), Math.ceil(first.total / size)) - 1;
  const rest = await Promise.all(Array.from({ length: Math.max(0, others) }, (_, index) => load({ page: index + 2, page_size: size })));
  // An addition between two requests moves an item to the next page, where it is found again.
  const items = new Map([first, ...rest].flatMap(({ data }) => data).map((item) => ['public_id' in item ? item.public_id : item.id, item]));
  return { data: [...items.values()], total: first.total };
}
