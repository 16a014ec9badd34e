import { ask, type Schemas } from '../../api/client';

/** Holds back what the alarms of `rule` send, until then; null ends the silence. */
export function silence(rule: string, until: string | null, comment = ''): Promise<Schemas['SilenceOut']> {
  const body = { until, ...(comment ? { comment } : {}) };
  return ask((http) => http.POST('/api/v1/rules/{id}/silence', { params: { path: { id: rule } }, body }));
}
