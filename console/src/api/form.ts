import { connection } from './connection.svelte';
import { OfflineError, toApiError } from './errors';
import { session } from './session.svelte';

/** Posts a form with a file; waits for a new login when it has ended. */
export async function postForm(path: string, form: FormData, key: string): Promise<unknown> {
  const token = session.token;
  const headers: Record<string, string> = { 'Idempotency-Key': key, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { method: 'POST', body: form, headers }).catch(() => {
    connection.noteFailure();
    throw new OfflineError();
  });
  const body = await response.json().catch((): unknown => null);
  if (response.status === 401 && token) {
    await session.again(token);
    if (session.token) return postForm(path, form, key);
  }
  if (!response.ok) throw toApiError(response, body);
  return body;
}
