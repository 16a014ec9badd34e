import createClient from 'openapi-fetch';
import type { paths } from './schema.d.ts';

export type { components, operations, paths } from './schema.d.ts';

/** A client of the service at `url`. `token` is an API token, or the access token of a login. */
export function signalbox(url: string, token?: string) {
  const headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
  return createClient<paths>({ baseUrl: url, headers });
}
