import { ask, type Schemas } from '../../api/client';
import { t } from '../../lib/i18n.svelte';
import { firstItems, MOST } from '../../lib/paging';
import { query } from '../../lib/query';

export type Contact = Schemas['ContactOut'];

export const KINDS: Schemas['ContactKind'][] = ['email', 'chat', 'webhook'];
export const FORMATS: [Schemas['ChatFormat'], string][] = [['slack', 'Slack'], ['mattermost', 'Mattermost'], ['teams', 'Teams']];

export function kindOf(kind: string): string {
  return kind === 'email' ? t('contacts.email') : kind === 'chat' ? t('contacts.chat') : t('contacts.webhook');
}

/** Where its messages go, as far as that is shown. */
export function placeOf({ address, host, url, format }: Contact): string {
  const chat = FORMATS.find(([word]) => word === format)?.[1];
  return address ?? url ?? (chat ? `${chat}, ${host ?? ''}` : '');
}

/** All contacts; their names for admins, because others may not read them. */
export function contactsQuery(enabled: () => boolean) {
  return query(() => ({
    key: ['contacts', 'all'],
    enabled: enabled(),
    load: (signal) => firstItems(MOST, (page) => ask((http) => http.GET('/api/v1/contacts', { params: { query: page }, signal }))).then(({ data }) => data),
  }));
}
