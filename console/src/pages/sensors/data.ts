/** Channels, of which there may be tens of thousands: never all of them are asked for. */
import { ask, existing, type Schemas } from '../../api/client';
import { query } from '../../lib/query';

export type Channel = Schemas['EventOut'];

/** The most that the interface gives in one answer. */
export const PAGE = 100;

export interface Filter { type?: Schemas['EventKind'] | undefined; name?: string | undefined }

/** The first `pages` pages of the channels that fit. */
export async function firstPages(filter: Filter, pages: number, signal: AbortSignal): Promise<{ data: Channel[]; total: number }> {
  const page = (number: number) =>
    ask((http) => http.GET('/api/v1/events', { params: { query: { ...filter, page: number, page_size: PAGE, sort: 'oldest' } }, signal }));
  const first = await page(1);
  const others = Math.min(pages, Math.ceil(first.total / PAGE)) - 1;
  const rest = await Promise.all(Array.from({ length: Math.max(0, others) }, (_, index) => page(index + 2)));
  return { data: [first, ...rest].flatMap(({ data }) => data), total: first.total };
}

/** The first channels, and those that `needed` names, wherever they are; a deleted one is left out. */
export async function channelsWith(needed: string[], signal: AbortSignal): Promise<Channel[]> {
  const { data } = await firstPages({}, 1, signal);
  const known = new Set(data.map(({ public_id }) => public_id));
  const missing = [...new Set(needed)].filter((id) => id && !known.has(id)).slice(0, PAGE);
  const found = await Promise.all(missing.map((id) => existing((http) => http.GET('/api/v1/events/{id}', { params: { path: { id } }, signal }))));
  return [...data, ...found.flat()];
}

export function channelsQuery(needed: () => string[] = () => []) {
  return query(() => {
    const ids = needed();
    return { key: ['channels', 'with', ids.toSorted()], load: (signal) => channelsWith(ids, signal), every: 30_000 };
  });
}

/** Channels that take values rather than give them. */
export function isActuator({ type }: { type: string }): boolean {
  return type !== 'sensor';
}

/** Limits of a channel; an actuator without any takes 0 and 1. */
export function limitsOf({ min_value, max_value }: Pick<Channel, 'min_value' | 'max_value'>): [number, number] {
  return [min_value ?? 0, max_value ?? 1];
}

/** Whether an actuator is only on or off. */
export function isSwitch(channel: Channel): boolean {
  const [low, high] = limitsOf(channel);
  return high - low <= 1 || channel.type.startsWith('cmd_');
}

export function isOn(channel: Channel, value: number): boolean {
  const [low, high] = limitsOf(channel);
  return value > (low + high) / 2;
}
