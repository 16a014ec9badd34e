/** Queries of several pages about files. */
import { ask } from '../../api/client';
import { query } from '../../lib/query';

const PRESENCE_MS = 5_000;

export function agentsQuery() {
  return query(() => ({
    key: ['agents', 'list'],
    load: (signal) => ask((http) => http.GET('/api/agents', { params: { query: { limit: 500 } }, signal })),
    every: PRESENCE_MS,
  }));
}

export function namesOf(agents: { id: number; name: string }[] | undefined): Map<number, string> {
  return new Map(agents?.map(({ id, name }) => [id, name]));
}
