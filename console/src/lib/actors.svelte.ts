/** Names for the actors of the log. Only admins see the list of users; others see themselves and kinds. */
import { SvelteMap } from 'svelte/reactivity';
import { ask } from '../api/client';
import { session } from '../api/session.svelte';
import { t, word } from './i18n.svelte';
import { firstItems, MOST } from './paging';

class Actors {
  private names = new SvelteMap<string, string>();
  private asked = false;

  name(actor: string): string {
    const [kind, id = ''] = actor.split(':');
    if (kind === 'system') return t('actor.system', { part: word(id.replaceAll('-', '_')) });
    if (kind === 'agent') return t('files.agent');
    if (id === session.user?.publicId) return session.user.name;
    void this.load();
    return this.names.get(id) ?? t('search.user');
  }

  user(id: string | null | undefined): string {
    return id ? this.name(`user:${id}`) : '–';
  }

  private async load(): Promise<void> {
    if (this.asked || !session.can('admin')) return;
    this.asked = true;
    try {
      const users = await firstItems(MOST, (page) => ask((http) => http.GET('/api/v1/users', { params: { query: page } })));
      for (const { public_id, username } of users.data) this.names.set(public_id, username);
    } catch {
      this.asked = false;
    }
  }
}

export const actors = new Actors();
