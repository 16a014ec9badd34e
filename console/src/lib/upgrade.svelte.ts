/** Whether the server has other pages by now than those that run here: the console stays open while the server is upgraded. */
import { connection } from '../api/connection.svelte';

class Upgrade {
  isThere = $state(false);
  private tag: string | null = null;

  /** Checks now and after each outage, which may have been a restart with a new version. */
  start(): void {
    void this.check();
    connection.onBack(() => void this.check());
    // The server has only the scripts of its own version: a page that was not loaded before is missing. So it is in an outage.
    addEventListener('vite:preloadError', () => void this.check());
  }

  private async check(): Promise<void> {
    const response = await fetch('/', { method: 'HEAD', headers: { Accept: 'text/html' }, cache: 'no-store' }).catch(() => null);
    const tag = response?.ok ? response.headers.get('etag') : null;
    if (!tag) return;
    if (this.tag !== null && tag !== this.tag) this.isThere = true;
    this.tag ??= tag;
  }
}

export const upgrade = new Upgrade();
