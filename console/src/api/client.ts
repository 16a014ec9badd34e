import createClient from 'openapi-fetch';
import { ticker } from '../lib/clock.svelte';
import { connection } from './connection.svelte';
import { ApiError, OfflineError, toApiError } from './errors';
import type { components, paths } from './schema';
import { session } from './session.svelte';

export type Schemas = components['schemas'];

export const http = createClient<paths>({ baseUrl: location.origin });

http.use({
  onRequest({ request }) {
    if (session.token) request.headers.set('Authorization', `Bearer ${session.token}`);
    return request;
  },
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** An answer with what its headers say. */
export interface Full<T> {
  data: T;
  etag: string | null;
  total: number;
}

/**
 * Makes a request and gives back what was answered. When the login has ended, it waits for a new one and asks again.
 * Throws {@link ApiError} or {@link OfflineError}.
 */
export async function askFull<T>(request: (client: typeof http) => Promise<Answer<T>>): Promise<Full<T>> {
  for (;;) {
    const token = session.token;
    const sent = Date.now();
    const answer = await request(http).catch((error: unknown) => {
      if (error instanceof DOMException && error.name === 'AbortError') throw error;
      connection.noteFailure();
      throw new OfflineError();
    });
    connection.noteAnswer();
    const { response } = answer;
    ticker.learn(response, sent);
    if (response.status === 401 && token) {
      await session.again(token);
      if (!session.token) throw toApiError(response, answer.error);
      continue;
    }
    if (!response.ok) throw toApiError(response, answer.error);
    return {
      data: answer.data as T,
      etag: response.headers.get('etag'),
      total: Number(response.headers.get('x-total-count') ?? 0),
    };
  }
}

export async function ask<T>(request: (client: typeof http) => Promise<Answer<T>>): Promise<T> {
  return (await askFull(request)).data;
}

/** The answer, or nothing where the resource does not exist any more. */
export function existing<T>(request: (client: typeof http) => Promise<Answer<T>>): Promise<T[]> {
  return ask(request).then((found) => [found], (error: unknown) => {
    if (error instanceof ApiError && error.status === 404) return [];
    throw error;
  });
}

/** A key under which repetitions of one request are one request. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
