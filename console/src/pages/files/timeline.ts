import { ask, type Schemas } from '../../api/client';

const AROUND_MS = 2_000;
const MOST = 500;

/**
 * The events of transfer `id`, oldest first. The log knows a transfer by another key than its number, which its first event
 * names; that was recorded when the transfer was created.
 */
export async function timelineOf(id: number, created: string, signal: AbortSignal): Promise<Schemas['LogEventOut'][]> {
  const at = Date.parse(created);
  const near = {
    stream_type: 'transfer', event_type: 'transfer_requested', order: 'oldest' as const, limit: MOST,
    from: new Date(at - AROUND_MS).toISOString(), to: new Date(at + AROUND_MS).toISOString(),
  };
  const requested = await ask((http) => http.GET('/api/v1/log', { params: { query: near }, signal }));
  const first = requested.data.find(({ data }) => (data as { number?: number }).number === id);
  if (!first) return [];
  const query = { stream_type: 'transfer', stream_id: first.stream_id, order: 'oldest' as const, limit: MOST };
  const { data } = await ask((http) => http.GET('/api/v1/log', { params: { query }, signal }));
  return data;
}
