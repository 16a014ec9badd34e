import type { Schemas } from '../../api/client';
import type { TextKey } from '../../lib/i18n.svelte';

export type WidgetOut = Schemas['WidgetOut'];

export const TYPES: [string, TextKey][] = [
  ['line_chart', 'widget.line_chart'],
  ['gauge', 'widget.gauge'],
  ['stat_card', 'widget.stat_card'],
  ['actuator_toggle', 'widget.actuator_toggle'],
];

/** Settings of a widget beside its channel. */
export interface Settings {
  range: string;
}

export function settingsOf(widget: { config_json?: string | null }): Settings {
  try {
    const stored = JSON.parse(widget.config_json ?? '{}') as Partial<Settings>;
    return { range: typeof stored.range === 'string' ? stored.range : '1h' };
  } catch {
    return { range: '1h' };
  }
}

const COLUMNS = 12;

/** The first place, by row and column, where a widget of `w` by `h` covers no other. */
export function freePlace(widgets: Pick<WidgetOut, 'x' | 'y' | 'w' | 'h'>[], w: number, h: number): { x: number; y: number } {
  const below = Math.max(0, ...widgets.map((other) => other.y + other.h));
  for (let y = 0; y < below; y += 1) {
    for (let x = 0; x + w <= COLUMNS; x += 1) {
      const isFree = widgets.every((other) => x + w <= other.x || other.x + other.w <= x || y + h <= other.y || other.y + other.h <= y);
      if (isFree) return { x, y };
    }
  }
  return { x: 0, y: below };
}
