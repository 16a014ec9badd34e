import type { Schemas } from '../api/client';
import type { Tone } from '../ui/Status.svelte';
import { bytes } from './format';

type LogEvent = Schemas['LogEventOut'];

export interface EventGroup {
  first: LogEvent;
  last: LogEvent;
  count: number;
}

/** Neighbouring events of one type are one row: a tree of a thousand files is staged in a thousand events. */
export function groups(events: LogEvent[]): EventGroup[] {
  const found: EventGroup[] = [];
  for (const event of events) {
    const open = found.at(-1);
    if (open && open.first.type === event.type && open.first.stream_id === event.stream_id) {
      open.last = event;
      open.count += 1;
    } else found.push({ first: event, last: event, count: 1 });
  }
  return found;
}

/** `transfer_failed` is “Transfer failed”. */
export function eventName(type: string): string {
  const text = type.replaceAll('_', ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function eventTone(type: string): Tone {
  if (/failed|dead/.test(type)) return 'bad';
  if (/completed|delivered|connected$|verified/.test(type) && !type.includes('dis')) return 'ok';
  if (/cancelled|requeued|disconnected|deleted|rolled_back|revoked|released/.test(type)) return 'warn';
  return 'idle';
}

const TELLING = ['error', 'reason', 'name', 'filename', 'url', 'leg', 'attempt', 'version', 'status', 'email', 'login', 'value'];

/** The fields of an event's data that distinguish it from others of its type. */
export function summary(event: LogEvent): string {
  const data = event.data as Record<string, unknown>;
  const said = TELLING.flatMap((name) => {
    const value = data[name];
    return typeof value === 'string' || typeof value === 'number' ? [name === 'attempt' ? `#${value}` : String(value)] : [];
  });
  if (typeof data.size === 'number') said.push(bytes(data.size));
  return said.join(' · ').slice(0, 160);
}
