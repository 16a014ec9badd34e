/** The time that is looked at: the last so many minutes, which move with the time, or from one moment to another. */
import { ticker } from './clock.svelte';
import { router } from './router.svelte';

export const PRESETS = ['15m', '1h', '6h', '1d', '7d', '30d', '365d'] as const;
const SECONDS: Record<string, number> = { m: 60, h: 3_600, d: 86_400 };
const DEFAULT = '1h';
const HOUR_MS = 3_600_000;
const LONGEST_MS = 3_660 * 24 * HOUR_MS;
/** Years that dates of the interface can have. */
const FIRST_MS = Date.parse('1900-01-01T00:00:00Z');
const LAST_MS = Date.parse('2200-01-01T00:00:00Z');

export interface Range {
  /** Milliseconds since 1970. */
  from: number;
  to: number;
  /** The length of a moving range, as it stands in the address. */
  preset: string | null;
}

/** An address may say anything: at most ten years, and an hour for what is not a length. */
export function lengthOf(preset: string): number {
  const match = /^(\d+)([mhd])$/.exec(preset);
  const length = match ? Number(match[1]) * (SECONDS[match[2] ?? 'm'] ?? 60) * 1000 : 0;
  return length > 0 ? Math.min(length, LONGEST_MS) : HOUR_MS;
}

/** The range that the address names, at `now`. */
export function rangeAt(now: number): Range {
  const from = Date.parse(router.get('from') ?? '');
  const to = Date.parse(router.get('to') ?? '');
  if (FIRST_MS <= from && from < to && to <= LAST_MS) return { from, to, preset: null };
  const preset = router.get('range') ?? DEFAULT;
  return { from: now - lengthOf(preset), to: now, preset };
}

/** `named` puts the default range into the address, too. */
export function choosePreset(preset: string, named = false): void {
  router.set({ range: preset === DEFAULT && !named ? null : preset, from: null, to: null }, { push: true });
}

export function chooseSpan(from: number, to: number): void {
  if (!(to - from >= 1_000 && from >= FIRST_MS && to <= LAST_MS)) return;
  router.set({ from: new Date(from).toISOString(), to: new Date(to).toISOString() }, { push: true });
}

/** Moves or widens `range` by a part of its length. */
export function shifted({ from, to }: Range, left: number, right: number): void {
  const length = to - from;
  chooseSpan(from + left * length, Math.min(to + right * length, ticker.read() + length));
}
