/** Queries of several pages about files. */
import { askFull } from '../../api/client';
import { firstRows, MOST } from '../../lib/paging';
import { query } from '../../lib/query';

const PRESENCE_MS = 5_000;

export function agentsQuery() {
  return query(() => ({
    key: ['agents', 'list'],
    load: (signal) => firstRows(MOST, (range) => askFull((http) => http.GET('/api/agents', { params: { query: range }, signal }))).then(({ data }) => data),
    every: PRESENCE_MS,
  }));
}

export function namesOf(agents: { id: number; name: string }[] | undefined): Map<number, string> {
  return new Map(agents?.map(({ id, name }) => [id, name]));
}
