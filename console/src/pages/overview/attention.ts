/** Unresolved failures, each with its cause and its remedy. */
import { ask, askFull, existing, newKey, type Schemas } from '../../api/client';
import { sentence } from '../../api/errors';
import { session } from '../../api/session.svelte';
import { ticker } from '../../lib/clock.svelte';
import { measured } from '../../lib/format';
import { t, word } from '../../lib/i18n.svelte';
import { firstItems, MOST } from '../../lib/paging';
import { saidOf } from '../../lib/problems';
import { changed } from '../../lib/query';
import type { IconName } from '../../ui/Icon.svelte';
import { acknowledge, reasonOf } from '../alarms/alarm';
import { channelsWith } from '../sensors/data';

export interface Trouble {
  key: string;
  icon: IconName;
  title: string;
  cause: string;
  since: string | null;
  href: string;
  /** The page where it can be mended, where no single request does it. */
  remedy?: { label: string; href: string };
  mend?: { label: string; icon?: IconName; done: string; role: 'operator' | 'admin'; run: () => Promise<unknown> };
}

/** Failures that are left to a page of their own: a list of all would have no end. */
export interface Rest {
  key: string;
  /** Failures among it. */
  count: number;
  text: string;
  href: string;
}

export interface Attention {
  troubles: Trouble[];
  rests: Rest[];
}

const DAY_MS = 24 * 60 * 60 * 1000;
/** Failures of one kind that are listed, and so the requests for their details. */
const EACH = 20;
/** Acknowledged ones are among them. */
const ALARMS = 100;
/** Of which the newest of each job is listed. */
const TRANSFERS = 100;

export async function attention(signal: AbortSignal): Promise<Attention> {
  const sources = [faults, alarms, transfers, plugins, documents, ...(session.can('admin') ? [firmware, contacts, webhooks] : [])];
  const found = await Promise.all(sources.map((source) => source(signal)));
  const troubles = found.flatMap((one) => one.troubles).map((trouble) => ({ ...trouble, cause: sentence(trouble.cause) }));
  return { troubles, rests: found.flatMap((one) => one.rests) };
}

type RestText = 'alarms' | 'transfers' | 'plugins' | 'documents' | 'contacts' | 'webhooks';

/** The failures that are listed, and how many of their kind are not. */
function found(troubles: Trouble[], kind: RestText, count: number, href: string): Attention {
  return { troubles, rests: count > 0 ? [{ key: kind, count, text: t(`overview.rest.${kind}`, { count }), href }] : [] };
}

async function faults(signal: AbortSignal): Promise<Attention> {
  const health = await ask((http) => http.GET('/health', { signal }));
  const troubles = health.faults.map(({ part, since }): Trouble => ({
    key: `fault ${part}`, icon: 'admin', title: part, cause: t('overview.cause.fault'), since, href: '/admin/health',
    ...(session.can('admin') ? { remedy: { label: t('overview.remedy.health'), href: '/admin/health' } } : {}),
  }));
  return { troubles, rests: [] };
}

/** Alarms that fire and are not acknowledged. */
async function alarms(signal: AbortSignal): Promise<Attention> {
  const query = { state: 'firing' as const, page_size: ALARMS };
  const firing = await ask((http) => http.GET('/api/v1/alarms', { params: { query }, signal }));
  const open = firing.data.filter(({ acknowledged_on }) => !acknowledged_on);
  const channels = open.length > 0 ? await channelsWith(open.map(({ event_public_id }) => event_public_id), signal) : [];
  const channelOf = new Map(channels.map((channel) => [channel.public_id, channel]));
  const valueOf = ({ value, event_public_id }: Schemas['AlarmOut']) =>
    value == null ? '' : ` (${[measured(value), channelOf.get(event_public_id)?.unit].filter(Boolean).join(' ')})`;
  const troubles = open.map((alarm): Trouble => ({
    key: `alarm ${alarm.public_id}`, icon: 'alert', title: channelOf.get(alarm.event_public_id)?.name ?? t('alarms.one'),
    cause: `${word(alarm.severity)}: ${reasonOf(alarm)}${valueOf(alarm)}`, since: alarm.fired_on ?? null, href: `/alarms/${alarm.public_id}`,
    mend: {
      label: t('alarms.acknowledge'), icon: 'check', done: t('alarms.acknowledged'), role: 'operator',
      run: async () => {
        await acknowledge(alarm.public_id);
        await changed('attention', 'alarms');
      },
    },
  }));
  // Of the others nothing says which are acknowledged.
  return found(troubles, 'alarms', firing.total - firing.data.length, '/alarms?status=firing');
}

/** Only the newest transfer of a job counts, because a later run replaces a failed one. */
async function transfers(signal: AbortSignal): Promise<Attention> {
  const from = new Date(ticker.read() - DAY_MS).toISOString();
  const query = { status: 'failed' as const, from, limit: TRANSFERS };
  const failed = await askFull((http) => http.GET('/api/transfers', { params: { query }, signal }));
  // A job that fails every minute must not hide the others: of each, the newest failure.
  const newest = new Map(failed.data.toReversed().map((transfer) => [transfer.job_id ?? `transfer ${transfer.id}`, transfer]));
  const each = failed.data.filter((transfer) => newest.get(transfer.job_id ?? `transfer ${transfer.id}`) === transfer);
  const shown = each.slice(0, EACH);
  const needed = shown.flatMap(({ job_id }) => job_id ?? []);
  const jobs = (await Promise.all(needed.map((id) => existing((http) => http.GET('/api/jobs/{id}', { params: { path: { id } }, signal }))))).flat();
  const jobOf = new Map(jobs.map((job) => [job.id, job]));
  const troubles = shown
    .filter(({ id, job_id }) => job_id == null || jobOf.get(job_id)?.last_transfer_id === id)
    .map((transfer) => toTrouble(transfer, transfer.job_id == null ? undefined : jobOf.get(transfer.job_id)));
  const href = '/files/transfers?status=failed';
  const { rests } = found([], 'transfers', each.length - shown.length, href);
  // Later runs may have mended those: they are named, but not counted as failures.
  const earlier = failed.total - failed.data.length;
  if (earlier > 0) rests.push({ key: 'earlier transfers', count: 0, text: t('overview.earlier', { count: earlier }), href });
  return { troubles, rests };
}

function toTrouble(transfer: Schemas['TransferOut'], job: Schemas['JobOut'] | undefined): Trouble {
  const { id, filename, error, finished_at } = transfer;
  const trouble: Trouble = {
    key: `transfer ${id}`, icon: 'files', title: job?.name ?? filename, cause: error ?? t('unknown'), since: finished_at ?? null,
    href: `/files/transfers/${id}`,
  };
  if (!job) return trouble;
  const key = newKey();
  const run = async () => {
    await ask((http) => http.POST('/api/jobs/{id}/run', { params: { path: { id: job.id }, header: { 'Idempotency-Key': key } } }));
    await changed('attention', 'transfers', 'jobs');
  };
  return { ...trouble, mend: { label: t('files.run.again'), done: t('files.run.done', { name: job.name }), role: 'operator', run } };
}

async function plugins(signal: AbortSignal): Promise<Attention> {
  const { data } = await firstItems(MOST, (page) => ask((http) => http.GET('/api/v1/plugins', { params: { query: { enabled: true, ...page } }, signal })));
  const failed = data.filter(({ status }) => status === 'error');
  const troubles = failed.slice(0, EACH).map(({ public_id, instance_name, error_message, updated_on }): Trouble => ({
    key: `plugin ${public_id}`, icon: 'fleet', title: instance_name, cause: error_message ?? t('unknown'), since: updated_on,
    href: `/fleet/plugins/${public_id}`, remedy: { label: t('overview.remedy.plugin'), href: `/fleet/plugins/${public_id}` },
  }));
  return found(troubles, 'plugins', failed.length - troubles.length, '/fleet/plugins?status=enabled');
}

async function documents(signal: AbortSignal): Promise<Attention> {
  const query = { status: 'failed' as const, from: new Date(ticker.read() - DAY_MS).toISOString(), page_size: EACH };
  const { items, total } = await ask((http) => http.GET('/api/v1/jobs', { params: { query }, signal }));
  const troubles = items.map(({ id, filename, error, error_code, updated_at }): Trouble => ({
    key: `document ${id}`, icon: 'documents', title: filename, cause: error ? saidOf(error, error_code) : t('unknown'), since: updated_at, href: `/documents/${id}`,
    mend: {
      label: t('documents.retry'), done: t('documents.retried', { name: filename }), role: 'operator',
      run: async () => {
        await ask((http) => http.POST('/api/v1/jobs/{id}/retry', { params: { path: { id } } }));
        await changed('attention', 'documents');
      },
    },
  }));
  return found(troubles, 'documents', total - troubles.length, '/documents?status=failed');
}

/** The newest failure counts: each version is applied to the same devices. */
async function firmware(signal: AbortSignal): Promise<Attention> {
  const { data } = await ask((http) => http.GET('/api/v1/ota', { params: { query: { status: 'failed', page_size: 1 } }, signal }));
  const troubles = data.map(({ public_id, version, error_message, completed_on }): Trouble => ({
    key: `firmware ${public_id}`, icon: 'fleet', title: t('overview.firmware', { version }), cause: error_message ?? t('unknown'),
    since: completed_on ?? null, href: '/fleet/firmware', remedy: { label: t('overview.remedy.firmware'), href: '/fleet/firmware' },
  }));
  return { troubles, rests: [] };
}

/** Contacts whose newest message has not arrived. */
async function contacts(signal: AbortSignal): Promise<Attention> {
  const { data, total } = await ask((http) => http.GET('/api/v1/contacts', { params: { query: { failing: true, page_size: EACH } }, signal }));
  const troubles = await Promise.all(data.map((contact) => unreached(contact, signal)));
  return found(troubles.flat(), 'contacts', total - data.length, '/contacts?status=failing');
}

async function unreached({ public_id: id, name }: Schemas['ContactOut'], signal: AbortSignal): Promise<Trouble[]> {
  const sent = await ask((http) => http.GET('/api/v1/contacts/{id}/messages', { params: { path: { id }, query: { page_size: 1 } }, signal }));
  const newest = sent.data[0];
  if (!newest || !['failed', 'dead_letter'].includes(newest.status)) return [];
  const mid = newest.public_id;
  const mend: Trouble['mend'] = {
    label: t('webhooks.redeliver'), done: t('webhooks.redelivered.one'), role: 'admin',
    run: async () => {
      await ask((http) => http.POST('/api/v1/contacts/{id}/messages/{mid}/redeliver', { params: { path: { id, mid } } }));
      await changed('attention', 'contacts');
    },
  };
  return [{
    key: `contact ${id}`, icon: 'bell', title: name, cause: newest.last_error ?? word('failing'), since: newest.created_on, href: `/contacts/${id}`,
    // One that fails is attempted again by itself.
    ...(newest.status === 'dead_letter' ? { mend } : {}),
  }];
}

async function webhooks(signal: AbortSignal): Promise<Attention> {
  const { data } = await firstItems(MOST, (page) => ask((http) => http.GET('/api/v1/webhooks', { params: { query: { enabled: true, ...page } }, signal })));
  const failing = data.filter(({ failing_since }) => failing_since);
  const troubles = await Promise.all(failing.slice(0, EACH).map((webhook) => failingWebhook(webhook, signal)));
  return found(troubles, 'webhooks', failing.length - troubles.length, '/webhooks');
}

async function failingWebhook(webhook: Schemas['WebhookOut'], signal: AbortSignal): Promise<Trouble> {
  const { public_id: id, url, failing_since } = webhook;
  const query = { status: 'dead_letter' as const, page_size: 1 };
  const lost = await ask((http) => http.GET('/api/v1/webhooks/{id}/deliveries', { params: { path: { id }, query }, signal }));
  const since = failing_since ?? '';
  return {
    key: `webhook ${id}`, icon: 'webhooks', title: url, cause: lost.data[0]?.last_error ?? word('failing'), since, href: `/webhooks/${id}`,
    mend: {
      label: t('webhooks.redeliver'), done: t('webhooks.redelivered'), role: 'admin',
      run: async () => {
        await ask((http) => http.POST('/api/v1/webhooks/{id}/redeliver', { params: { path: { id } }, body: { since } }));
        await changed('attention', 'webhooks');
      },
    },
  };
}
