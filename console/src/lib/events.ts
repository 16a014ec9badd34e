import type { Schemas } from '../api/client';
import type { Tone } from '../ui/Status.svelte';
import { bytes, measured } from './format';
import { pick, word } from './i18n.svelte';
import { saidOf } from './problems';
import { eventTexts, streamTexts } from './texts/events';

type LogEvent = Schemas['LogEventOut'];

/** All kinds of events. */
export const EVENTS = Object.keys(eventTexts);
/** All kinds of resources that have events. */
export const STREAMS = Object.keys(streamTexts);

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

/** The name of a kind of events: `transfer_failed` is “Transfer failed”. */
export function eventName(type: string): string {
  return named(eventTexts, type);
}

/** The name of a kind of resources of the log. */
export function streamName(type: string): string {
  return named(streamTexts, type);
}

/** The kind of events that somebody has named, in the chosen language or as the interface does. */
export function eventTypeOf(name: string): string {
  const text = name.trim().toLowerCase();
  return EVENTS.find((type) => eventName(type).toLowerCase() === text) ?? text.replaceAll(/[\s-]+/g, '_');
}

/** A server that is newer than the page may have kinds that it does not know. */
function named(texts: Record<string, readonly [string, string]>, type: string): string {
  const known = Object.hasOwn(texts, type) ? texts[type] : undefined;
  if (known) return pick(known);
  const text = type.replaceAll('_', ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function eventTone(type: string): Tone {
  if (/failed|dead/.test(type)) return 'bad';
  if (/completed|delivered|connected$|verified/.test(type) && !type.includes('dis')) return 'ok';
  if (/cancelled|requeued|disconnected|deleted|rolled_back|revoked|released/.test(type)) return 'warn';
  return 'idle';
}

const TELLING = ['error', 'reason', 'name', 'filename', 'url', 'leg', 'attempt', 'version', 'status', 'severity', 'email', 'login', 'value'];
/** Fields whose values are words of the interface. */
const WORDS = new Set(['reason', 'leg', 'status', 'severity']);

interface Failure { code: string; message: string }

function isFailure(value: unknown): value is Failure {
  return typeof value === 'object' && value !== null && 'code' in value && 'message' in value;
}

/** The fields of an event's data that distinguish it from others of its type. */
export function summary(event: LogEvent): string {
  const data = event.data as Record<string, unknown>;
  const said = TELLING.flatMap((name) => {
    const value = data[name];
    if (typeof value === 'number') return [name === 'attempt' ? `#${value}` : name === 'value' ? measured(value) : String(value)];
    return typeof value === 'string' ? [WORDS.has(name) && /^[a-z_]+$/.test(value) ? word(value) : value] : [];
  });
  if (isFailure(data.failure)) said.unshift(saidOf(data.failure.message, data.failure.code));
  if (typeof data.pages_done === 'number') said.push(`${data.pages_done} / ${typeof data.page_count === 'number' ? data.page_count : '?'}`);
  if (Array.isArray(data.attempts)) said.push(...results(data.attempts as Attempt[]));
  if (Array.isArray(data.deliveries)) said.push(...counted((data.deliveries as { event_type?: string }[]).map(({ event_type }) => event_type)));
  if (Array.isArray(data.files)) said.push(...listed(data.files as { name?: string }[]));
  if (typeof data.bytes === 'number') said.push(bytes(data.bytes));
  if (typeof data.size === 'number') said.push(bytes(data.size));
  return said.join(' · ').slice(0, 160);
}

interface Attempt { verdict?: string; status?: number | null; error?: string | null }

/** How attempts ended: all in one word where they are alike. */
function results(attempts: Attempt[]): string[] {
  const said = attempts.flatMap(({ verdict, error }) => (verdict ? [`${word(verdict)}${error ? ` (${error})` : ''}`] : []));
  return counted([...new Set(said)]);
}

function listed(files: { name?: string }[]): string[] {
  return counted(files.map(({ name }) => name));
}

/** The first of several, and how many others there are. */
function counted(names: (string | undefined)[]): string[] {
  const [first] = names;
  return first ? [names.length > 1 ? `${first} + ${names.length - 1}` : first] : [];
}
