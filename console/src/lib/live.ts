/** Refreshes what shows a resource when it changes. */
import type { Query } from '@tanstack/svelte-query';
import type { Change } from '../api/changes.svelte';
import { queries } from './query';

/** Types of resources, and the first words of the keys under which pages ask for them. */
const KEYS: Record<string, string[]> = {
  alarm: ['alarms', 'attention'],
  agent: ['agents', 'attention'],
  agent_token: ['agent-tokens'],
  api_token: ['api-tokens'],
  channel: ['channels'],
  contact: ['contacts'],
  dashboard: ['dashboards'],
  delivery: ['webhooks', 'contacts', 'alarms', 'attention'],
  experiment: ['experiments'],
  extraction_job: ['documents', 'attention'],
  firmware: ['firmware', 'attention'],
  // A job shows its last run.
  job: ['jobs'],
  log_entry: ['entries'],
  plugin_instance: ['plugins', 'attention'],
  plugin_package: ['packages', 'plugins'],
  rule: ['rules'],
  transfer: ['transfers', 'jobs', 'attention'],
  user: ['users'],
  webhook: ['webhooks', 'attention'],
};
/** Every change is in the log, too. */
const LOG = 'log';
/** Changes are gathered for so long, so that many of them are one refresh. */
const GATHER_MS = 400;
/** A refresh is waited for so long: requests may wait for a new login. */
const LONGEST_MS = 5_000;
/** When to look again at what reads did not show yet. */
const AGAIN_MS = [2_000, 10_000];

const ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;
/** Words of keys, and ids of the resources that changed. */
let gathered = new Map<string, Set<string>>();
let isScheduled = false;

export function onChange(change: Change | null): void {
  if (!change) {
    void queries.invalidateQueries();
    return;
  }
  for (const word of [...(KEYS[change.type] ?? []), LOG]) {
    const ids = gathered.get(word) ?? new Set();
    gathered.set(word, ids.add(change.id));
  }
  schedule();
  if (change.eventual) for (const wait of AGAIN_MS) setTimeout(() => onChange({ ...change, eventual: false }), wait);
}

/** One refresh after the other: a change that arrives during one leads to another, and cuts none off. */
function schedule(): void {
  if (isScheduled) return;
  isScheduled = true;
  setTimeout(() => {
    const ids = gathered;
    gathered = new Map();
    const refreshed = queries.invalidateQueries({ predicate: ({ queryKey }: Query) => concerns(queryKey, ids) });
    const tooLong = new Promise((resolve) => setTimeout(resolve, LONGEST_MS));
    void Promise.race([refreshed, tooLong]).finally(() => {
      isScheduled = false;
      if (gathered.size > 0) schedule();
    });
  }, GATHER_MS);
}

/** Whether a query may show one of the resources: lists do, and the page of one of them. */
function concerns([word, part]: readonly unknown[], ids: Map<string, Set<string>>): boolean {
  const changed = ids.get(String(word));
  if (!changed) return false;
  const isOne = word !== 'jobs' && word !== LOG && (typeof part === 'number' || (typeof part === 'string' && ID.test(part)));
  return !isOne || changed.has(String(part));
}
