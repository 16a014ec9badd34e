import { ask, type Schemas } from '../../api/client';
import { query } from '../../lib/query';

const PAGE = 100;
/** Channels that the console lists at most. */
const MOST_PAGES = 20;

/** All channels. */
export async function allChannels(signal: AbortSignal): Promise<Schemas['EventOut'][]> {
  const page = (number: number) =>
    ask((http) => http.GET('/api/v1/events', { params: { query: { page: number, page_size: PAGE, sort: 'oldest' } }, signal }));
  const first = await page(1);
  const others = Math.min(MOST_PAGES, Math.ceil(first.total / PAGE)) - 1;
  const rest = await Promise.all(Array.from({ length: Math.max(0, others) }, (_, index) => page(index + 2)));
  return [first, ...rest].flatMap(({ data }) => data);
}

export function channelsQuery() {
  return query(() => ({ key: ['channels', 'all'], load: allChannels, every: 30_000 }));
}

/** Channels that take values rather than give them. */
export function isActuator({ type }: { type: string }): boolean {
  return type !== 'sensor';
}
