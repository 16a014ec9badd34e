import { ask, http } from './client';
import { ApiError, OfflineError, toApiError } from './errors';
import { session, type User } from './session.svelte';

import { ticker } from '../lib/clock.svelte';
const HALF_AN_HOUR = 30 * 60 * 1000;

/** Logs in; the session starts when the user is known. Throws {@link ApiError} or {@link OfflineError}. */
export async function logIn(name: string, password: string): Promise<void> {
  const { data, error, response } = await http
    .POST('/api/auth/login', { body: { email: name, password } })
    .catch(() => { throw new OfflineError(); });
  if (!data) throw toApiError(response, error);
  await begin(data.token, data.expires_at);
}

/** Exchanges the code that single sign-on came back with. */
export async function exchange(code: string): Promise<void> {
  const { data, error, response } = await http
    .POST('/api/v1/auth/sso/exchange', { body: { code }, credentials: 'include' })
    .catch(() => { throw new OfflineError(); });
  if (!data) throw toApiError(response, error);
  await begin(data.access_token, data.expires_at);
}

async function begin(token: string, expiresAt: string): Promise<void> {
  const headers = { Authorization: `Bearer ${token}` };
  const response = await fetch('/api/v1/auth/me', { headers }).catch(() => { throw new OfflineError(); });
  const me = (await response.json()) as { username: string; email: string; role: User['role']; public_id: string };
  if (!response.ok) throw toApiError(response, me);
  session.begin(token, expiresAt, { name: me.username, email: me.email, role: me.role, publicId: me.public_id });
}

export async function logOut(): Promise<void> {
  await http.POST('/api/v1/auth/logout').catch(() => undefined);
  session.end();
}

/** Renews the login of a page that stays open, in its last half hour. */
export async function renewInTime(): Promise<void> {
  const left = session.expiresAt - ticker.read();
  if (!session.token || session.hasEnded || left > HALF_AN_HOUR || left <= 0) return;
  try {
    const { token, expires_at } = await ask((client) => client.POST('/api/auth/refresh'));
    session.renew(token, expires_at);
  } catch (error) {
    if (!(error instanceof ApiError || error instanceof OfflineError)) throw error;
  }
}
