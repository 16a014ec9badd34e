import { ask } from '../api/client';
import { session } from '../api/session.svelte';
import { t } from '../lib/i18n.svelte';
import { sections } from '../lib/pages';
import type { IconName } from '../ui/Icon.svelte';

export interface Hit {
  title: string;
  kind: string;
  href: string;
  icon: IconName;
}

const EACH = 5;

/** Search by name: pages first, then resources of every kind. A kind whose request fails has no hits. */
export async function search(text: string, signal: AbortSignal): Promise<Hit[]> {
  const wanted = text.trim().toLowerCase();
  const pages = sections
    .filter(({ role }) => session.can(role))
    .map(({ path, text: key, icon }): Hit => ({ title: t(key), kind: t('search.page'), href: `/${path}`, icon }))
    .filter(({ title }) => title.toLowerCase().includes(wanted));
  if (!wanted) return pages;
  const found = await Promise.all(kinds(wanted, signal).map((hits) => hits.catch(() => [])));
  return [...pages, ...found.flat()];
}

function kinds(name: string, signal: AbortSignal): Promise<Hit[]>[] {
  const short = { params: { query: { name, limit: EACH } }, signal };
  const page = { params: { query: { name, page_size: EACH } }, signal };
  const admin = session.can('admin');
  return [
    ask((http) => http.GET('/api/agents', short)).then((rows) =>
      rows.map(({ id, name }): Hit => ({ title: name, kind: t('files.agent'), href: `/files/agents/${id}`, icon: 'files' }))),
    ask((http) => http.GET('/api/jobs', short)).then((rows) =>
      rows.map(({ id, name }): Hit => ({ title: name, kind: t('files.job'), href: `/files/jobs/${id}`, icon: 'files' }))),
    ask((http) => http.GET('/api/transfers', short)).then((rows) =>
      rows.map(({ id, filename }): Hit => ({ title: `${filename} · ${id}`, kind: t('files.transfer'), href: `/files/transfers/${id}`, icon: 'files' }))),
    ask((http) => http.GET('/api/v1/events', page)).then(({ data }) =>
      data.map(({ public_id, name }): Hit => ({ title: name, kind: t('sensors.channel'), href: `/sensors/channels/${public_id}`, icon: 'sensors' }))),
    ask((http) => http.GET('/api/v1/experiments', page)).then(({ data }) =>
      data.map(({ public_id, name }): Hit => ({ title: name, kind: t('sensors.experiment'), href: `/sensors/experiments/${public_id}`, icon: 'sensors' }))),
    ask((http) => http.GET('/api/v1/dashboards', page)).then(({ data }) =>
      data.map(({ public_id, name }): Hit => ({ title: name, kind: t('search.dashboard'), href: `/dashboards/${public_id}`, icon: 'dashboards' }))),
    ask((http) => http.GET('/api/v1/jobs', { params: { query: { filename: name, page_size: EACH } }, signal })).then(({ items }) =>
      items.map(({ id, filename }): Hit => ({ title: filename, kind: t('search.document'), href: `/documents/${id}`, icon: 'documents' }))),
    ask((http) => http.GET('/api/v1/plugins', page)).then(({ data }) =>
      data.map(({ public_id, instance_name }): Hit => ({ title: instance_name, kind: t('search.plugin'), href: `/fleet/plugins/${public_id}`, icon: 'fleet' }))),
    ...(admin
      ? [
          ask((http) => http.GET('/api/v1/rules', page)).then(({ data }) =>
            data.map(({ public_id, name }): Hit => ({ title: name, kind: t('search.rule'), href: `/rules/${public_id}`, icon: 'rules' }))),
          ask((http) => http.GET('/api/v1/contacts', page)).then(({ data }) =>
            data.map(({ public_id, name }): Hit => ({ title: name, kind: t('search.contact'), href: `/contacts/${public_id}`, icon: 'bell' }))),
          ask((http) => http.GET('/api/v1/webhooks', { params: { query: { url: name, page_size: EACH } }, signal })).then(({ data }) =>
            data.map(({ public_id, url }): Hit => ({ title: url, kind: t('search.webhook'), href: `/webhooks/${public_id}`, icon: 'webhooks' }))),
          ask((http) => http.GET('/api/v1/users', page)).then(({ data }) =>
            data.map(({ username }): Hit => ({ title: username, kind: t('search.user'), href: `/admin/users?q=${encodeURIComponent(username)}`, icon: 'admin' }))),
        ]
      : []),
  ];
}
