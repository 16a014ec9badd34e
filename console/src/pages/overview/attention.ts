/** Unresolved failures, each with its cause and its remedy. */
import { ask, existing, newKey, type Schemas } from '../../api/client';
import { sentence } from '../../api/errors';
import { session } from '../../api/session.svelte';
import { ticker } from '../../lib/clock.svelte';
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
  mend?: { label: string; done: string; role: 'operator' | 'admin'; run: () => Promise<unknown> };
}

const DAY_MS = 24 * 60 * 60 * 1000;
const EACH = 20;
/** Acknowledged ones are among them. */
const ALARMS = 100;

export async function troubles(signal: AbortSignal): Promise<Trouble[]> {
  const sources = [faults, alarms, transfers, plugins, documents, ...(session.can('admin') ? [firmware, contacts, webhooks] : [])];
  const found = await Promise.all(sources.map((source) => source(signal)));
  return found.flat().map((trouble) => ({ ...trouble, cause: sentence(trouble.cause) }));
}

async function faults(signal: AbortSignal): Promise<Trouble[]> {
  const health = await ask((http) => http.GET('/health', { signal }));
  return health.faults.map(({ part, since }) => ({
    key: `fault ${part}`, icon: 'admin', title: part, cause: t('overview.cause.fault'), since, href: '/admin/health',
    ...(session.can('admin') ? { remedy: { label: t('overview.remedy.health'), href: '/admin/health' } } : {}),
  }));
}

/** Alarms that fire and are not acknowledged. */
async function alarms(signal: AbortSignal): Promise<Trouble[]> {
  const query = { state: 'firing' as const, page_size: ALARMS };
  const firing = await ask((http) => http.GET('/api/v1/alarms', { params: { query }, signal }));
  const open = firing.data.filter(({ acknowledged_on }) => !acknowledged_on);
  if (open.length === 0) return [];
  const channels = await channelsWith(open.map(({ event_public_id }) => event_public_id), signal);
  const names = new Map(channels.map(({ public_id, name }) => [public_id, name]));
  return open.map((alarm) => ({
    key: `alarm ${alarm.public_id}`, icon: 'alert', title: names.get(alarm.event_public_id) ?? t('alarms.one'),
    cause: `${word(alarm.severity)}: ${reasonOf(alarm)}`, since: alarm.fired_on ?? null, href: `/alarms/${alarm.public_id}`,
    mend: {
      label: t('alarms.acknowledge'), done: t('alarms.acknowledged'), role: 'operator',
      run: async () => {
        await acknowledge(alarm.public_id);
        await changed('attention', 'alarms');
      },
    },
  }));
}

/** The newest transfer of each job counts: what a later run has done is mended. */
async function transfers(signal: AbortSignal): Promise<Trouble[]> {
  const from = new Date(ticker.read() - DAY_MS).toISOString();
  const query = { status: 'failed' as const, from, limit: EACH };
  const failed = await ask((http) => http.GET('/api/transfers', { params: { query }, signal }));
  const needed = new Set(failed.flatMap(({ job_id }) => (job_id == null ? [] : [job_id])));
  const jobs = (await Promise.all([...needed].map((id) => existing((http) => http.GET('/api/jobs/{id}', { params: { path: { id } }, signal }))))).flat();
  const lastOf = new Map(jobs.map((job) => [job.id, job]));
  return failed
    .filter(({ id, job_id }) => job_id == null || lastOf.get(job_id)?.last_transfer_id === id)
    .map((transfer) => toTrouble(transfer, transfer.job_id == null ? undefined : lastOf.get(transfer.job_id)));
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

async function plugins(signal: AbortSignal): Promise<Trouble[]> {
  const { data } = await firstItems(MOST, (page) => ask((http) => http.GET('/api/v1/plugins', { params: { query: page }, signal })));
  return data
    .filter(({ status, enabled }) => status === 'error' && enabled)
    .map(({ public_id, instance_name, error_message, updated_on }) => ({
      key: `plugin ${public_id}`, icon: 'fleet', title: instance_name, cause: error_message ?? t('unknown'), since: updated_on,
      href: `/fleet/plugins/${public_id}`, remedy: { label: t('overview.remedy.plugin'), href: `/fleet/plugins/${public_id}` },
    }));
}

async function documents(signal: AbortSignal): Promise<Trouble[]> {
  const query = { status: 'failed' as const, from: new Date(ticker.read() - DAY_MS).toISOString(), page_size: EACH };
  const { items } = await ask((http) => http.GET('/api/v1/jobs', { params: { query }, signal }));
  return items.map(({ id, filename, error, error_code, updated_at }) => ({
    key: `document ${id}`, icon: 'documents', title: filename, cause: error ? saidOf(error, error_code) : t('unknown'), since: updated_at, href: `/documents/${id}`,
    mend: {
      label: t('documents.retry'), done: t('documents.retried', { name: filename }), role: 'operator',
      run: async () => {
        await ask((http) => http.POST('/api/v1/jobs/{id}/retry', { params: { path: { id } } }));
        await changed('attention', 'documents');
      },
    },
  }));
}

async function firmware(signal: AbortSignal): Promise<Trouble[]> {
  const { data } = await ask((http) => http.GET('/api/v1/ota', { params: { query: { status: 'failed', page_size: 1 } }, signal }));
  return data.map(({ public_id, version, error_message, completed_on }) => ({
    key: `firmware ${public_id}`, icon: 'fleet', title: t('overview.firmware', { version }), cause: error_message ?? t('unknown'),
    since: completed_on ?? null, href: '/fleet/firmware', remedy: { label: t('overview.remedy.firmware'), href: '/fleet/firmware' },
  }));
}

/** Contacts whose newest message has not arrived. */
async function contacts(signal: AbortSignal): Promise<Trouble[]> {
  const { data } = await ask((http) => http.GET('/api/v1/contacts', { params: { query: { page_size: EACH } }, signal }));
  const found = await Promise.all(data.map((contact) => unreached(contact, signal)));
  return found.flat();
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

async function webhooks(signal: AbortSignal): Promise<Trouble[]> {
  const { data } = await firstItems(MOST, (page) => ask((http) => http.GET('/api/v1/webhooks', { params: { query: page }, signal })));
  const failing = data.filter(({ failing_since, enabled }) => failing_since && enabled);
  return Promise.all(failing.map((webhook) => failingWebhook(webhook, signal)));
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
