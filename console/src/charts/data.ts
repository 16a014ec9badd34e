/** Values of channels over a range, as columns. */
import { ask } from '../api/client';

export interface Columns {
  /** Seconds since 1970. */
  xs: number[];
  ys: number[];
}

const MINUTE_MS = 60_000;
const LONGEST_MINUTES = 14_400;
const POINTS = 2_000;
/** Channels of one request at most. */
const CHANNELS = 20;

/** The values of `channels` between two moments (milliseconds), thinned so that peaks stay. */
export async function load(channels: string[], from: number, to: number, signal: AbortSignal): Promise<Record<string, Columns>> {
  const minutes = Math.min(LONGEST_MINUTES, Math.max(1, Math.ceil((Date.now() - from) / MINUTE_MS)));
  const portions = Array.from({ length: Math.ceil(channels.length / CHANNELS) }, (_, at) => channels.slice(at * CHANNELS, (at + 1) * CHANNELS));
  const found = await Promise.all(portions.map(async (ids) => {
    const body = { event_public_ids: ids, minutes, max_points: POINTS, aggregate: 'minmax' as const };
    return (await ask((http) => http.POST('/api/v1/datapoints/series', { body, signal }))) as Record<string, { timestamp: string; value: number }[]>;
  }));
  const series = Object.assign({}, ...found) as (typeof found)[number];
  return Object.fromEntries(channels.map((id) => [id, columns(series[id] ?? [], from, to)]));
}

function columns(points: { timestamp: string; value: number }[], from: number, to: number): Columns {
  const xs: number[] = [];
  const ys: number[] = [];
  for (const { timestamp, value } of points) {
    const time = Date.parse(timestamp);
    if (time < from || time > to) continue;
    xs.push(time / 1000);
    ys.push(value);
  }
  return { xs, ys };
}
