/** The rules that fired last, by the log: there may be thousands that have not. */
import { ask, existing } from '../../api/client';

const SHOWN = 5;
/** Events that are looked at: one rule may have fired many times. */
const LOOKED = 200;

export interface Fired { id: string; name: string; time: string }

export async function lastFired(signal: AbortSignal): Promise<Fired[]> {
  const query = { stream_type: 'rule', event_type: 'rule_triggered', limit: LOOKED };
  const { data } = await ask((http) => http.GET('/api/v1/log', { params: { query }, signal }));
  // Newest first: a rule's first event here is its last one.
  const times = new Map(data.toReversed().map(({ stream_id, time }) => [stream_id, time]));
  const newest = [...times].sort(([, one], [, other]) => other.localeCompare(one)).slice(0, SHOWN);
  const rules = await Promise.all(newest.map(([id]) => existing((http) => http.GET('/api/v1/rules/{id}', { params: { path: { id } }, signal }))));
  return rules.flat().map(({ public_id: id, name }) => ({ id, name, time: times.get(id) ?? '' }));
}
