/** Values of channels over a range, as columns. */
import { ask } from '../api/client';

import { ticker } from '../lib/clock.svelte';
export interface Columns {
  /** Seconds since 1970. */
  xs: number[];
  ys: number[];
}

interface Point { timestamp: string; value: number }

const MINUTE_MS = 60_000;
const LONGEST_MINUTES = 14_400;
const POINTS = 2_000;
/** Channels of one request at most. */
const CHANNELS = 20;
/** Lengths of buckets in seconds; those of whole hours are read from roll-ups. */
const STEPS = [1, 5, 10, 30, 60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000, 31_536_000];
const BUCKETS = 1_000;

/**
 * The values of `channels` between two moments (milliseconds), thinned so that peaks stay: points of a range that reaches to
 * the present and is not long, otherwise the least and the greatest value of each of at most a thousand buckets.
 */
export async function load(channels: string[], from: number, to: number, signal: AbortSignal): Promise<Record<string, Columns>> {
  const minutes = Math.max(1, Math.ceil((ticker.read() - from) / MINUTE_MS));
  const isRecent = ticker.read() - to < MINUTE_MS && minutes <= LONGEST_MINUTES;
  const read = isRecent ? points(minutes, from, to) : buckets(from, to);
  const portions = Array.from({ length: Math.ceil(channels.length / CHANNELS) }, (_, at) => channels.slice(at * CHANNELS, (at + 1) * CHANNELS));
  const found = await Promise.all(portions.map(async (ids) => {
    const body = { event_public_ids: ids, aggregate: 'minmax' as const, ...read.asked };
    return (await ask((http) => http.POST('/api/v1/datapoints/series', { body, signal }))) as Record<string, Point[]>;
  }));
  const series = Object.assign({}, ...found) as (typeof found)[number];
  return Object.fromEntries(channels.map((id) => [id, read.columns(series[id] ?? [])]));
}

function points(minutes: number, from: number, to: number) {
  const columns = (found: Point[]): Columns => {
    const inside = found.map(({ timestamp, value }) => ({ time: Date.parse(timestamp), value })).filter(({ time }) => time >= from && time <= to);
    return { xs: inside.map(({ time }) => time / 1000), ys: inside.map(({ value }) => value) };
  };
  return { asked: { minutes, max_points: POINTS }, columns };
}

function buckets(from: number, to: number) {
  const length = (to - from) / 1000;
  const step = STEPS.find((seconds) => length / seconds <= BUCKETS) ?? (STEPS.at(-1) as number);
  const first = Math.floor(from / 1000 / step) * step;
  /** Both values of a bucket stand at its start; they are drawn inside of it, one after the other. */
  const columns = (found: Point[]): Columns => {
    const xs: number[] = [];
    const ys: number[] = [];
    let before = Number.NaN;
    for (const { timestamp, value } of found) {
      const start = Date.parse(timestamp) / 1000;
      xs.push(start + (start === before ? 0.75 : 0.25) * step);
      ys.push(value);
      before = start;
    }
    return { xs, ys };
  };
  const asked = { from: new Date(first * 1000).toISOString(), to: new Date(to).toISOString(), step_seconds: step };
  return { asked, columns };
}
