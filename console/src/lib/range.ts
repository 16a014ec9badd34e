/** The time that is looked at: the last so many minutes, which move with the time, or from one moment to another. */
import { router } from './router.svelte';

export const PRESETS = ['15m', '1h', '6h', '1d', '7d', '30d', '365d'] as const;
const SECONDS: Record<string, number> = { m: 60, h: 3_600, d: 86_400 };
const DEFAULT = '1h';

export interface Range {
  /** Milliseconds since 1970. */
  from: number;
  to: number;
  /** The length of a moving range, as it stands in the address. */
  preset: string | null;
}

export function lengthOf(preset: string): number {
  const match = /^(\d+)([mhd])$/.exec(preset);
  return match ? Number(match[1]) * (SECONDS[match[2] ?? 'm'] ?? 60) * 1000 : 3_600_000;
}

/** The range that the address names, at `now`. */
export function rangeAt(now: number): Range {
  const from = Date.parse(router.get('from') ?? '');
  const to = Date.parse(router.get('to') ?? '');
  if (from < to) return { from, to, preset: null };
  const preset = router.get('range') ?? DEFAULT;
  return { from: now - lengthOf(preset), to: now, preset };
}

/** `named` puts the default range into the address, too. */
export function choosePreset(preset: string, named = false): void {
  router.set({ range: preset === DEFAULT && !named ? null : preset, from: null, to: null }, { push: true });
}

export function chooseSpan(from: number, to: number): void {
  if (!(to - from >= 1_000)) return;
  router.set({ from: new Date(from).toISOString(), to: new Date(to).toISOString() }, { push: true });
}

/** Moves or widens `range` by a part of its length. */
export function shifted({ from, to }: Range, left: number, right: number): void {
  const length = to - from;
  chooseSpan(from + left * length, Math.min(to + right * length, Date.now() + length));
}
