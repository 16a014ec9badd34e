import { OfflineError, toApiError } from '../api/errors';
import { session } from '../api/session.svelte';

/** Saves what `path` answers as a file. The login is in a header, which a plain link cannot send. */
export async function download(path: string, name: string): Promise<void> {
  const token = session.token;
  const headers: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers }).catch(() => { throw new OfflineError(); });
  if (response.status === 401 && token) {
    await session.again(token);
    if (session.token) return download(path, name);
  }
  if (!response.ok) throw toApiError(response, await response.json().catch((): unknown => null));
  save(await response.blob(), name);
}

/** Saves `content` as a file called `name`. */
export function save(content: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

