import { ask, type Schemas } from '../../api/client';
import { t } from '../../lib/i18n.svelte';
import type { Tone } from '../../ui/Status.svelte';

export type Alarm = Schemas['AlarmOut'];

const SEVERITIES: Record<Schemas['Severity'], Tone> = { critical: 'bad', warning: 'warn', info: 'info' };

/** An alarm that is cleared is calm, whatever it was. */
export function toneOf({ state, severity }: Pick<Alarm, 'state' | 'severity'>): Tone {
  return state === 'firing' ? SEVERITIES[severity] : state === 'pending' ? 'idle' : 'ok';
}

export function isOpen({ state }: Pick<Alarm, 'state'>): boolean {
  return state !== 'cleared';
}

export function acknowledge(id: string, comment = ''): Promise<Alarm> {
  return ask((http) => http.POST('/api/v1/alarms/{id}/acknowledge', { params: { path: { id } }, body: comment ? { comment } : {} }));
}

export function unacknowledge(id: string): Promise<Alarm> {
  return ask((http) => http.POST('/api/v1/alarms/{id}/unacknowledge', { params: { path: { id } } }));
}

/** Why it was raised, in words. */
export function reasonOf({ reason }: Pick<Alarm, 'reason'>): string {
  return t(reason === 'no_data' ? 'alarms.reason.no_data' : 'alarms.reason.condition');
}
