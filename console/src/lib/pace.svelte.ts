/** How fast each transfer moves, from what it had moved whenever that was asked. */
interface Seen {
  moved: number;
  at: number;
  perSecond: number;
}

const SMOOTHING = 0.4;
const seen = new Map<number, Seen>();

/** Bytes per second of transfer `id`, which has moved `moved` bytes by now over both legs; 0 while that is not known. */
export function pace(id: number, moved: number): number {
  const now = performance.now();
  const before = seen.get(id);
  if (!before || moved < before.moved) {
    seen.set(id, { moved, at: now, perSecond: 0 });
    return 0;
  }
  const seconds = (now - before.at) / 1000;
  if (seconds < 0.5) return before.perSecond;
  const current = (moved - before.moved) / seconds;
  const perSecond = before.perSecond === 0 ? current : before.perSecond * (1 - SMOOTHING) + current * SMOOTHING;
  seen.set(id, { moved, at: now, perSecond });
  return perSecond;
}
