import { createQuery, keepPreviousData, QueryClient } from '@tanstack/svelte-query';
import { changes } from '../api/changes.svelte';
import { ApiError } from '../api/errors';

/**
 * How often is asked for again what changes are notified of, by the first word of its key: some of what it shows is not in the
 * log. While no notifications arrive, it is asked for more often.
 */
const POLL_MS: Record<string, number> = { agents: 10_000, attention: 10_000, plugins: 10_000, log: 10_000 };
const RARE_MS = 60_000;
const WITHOUT_CHANGES_MS = 3_000;
/** Data whose changes the live stream does not report. */
const SILENT = new Set(['series', 'health', 'formats', 'sso']);

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // Refusals are answers; only what may be different the next time is tried again.
      retry: (count, error) => count < 2 && !(error instanceof ApiError && error.status < 500),
      retryDelay: (count) => 500 * 2 ** count,
      refetchOnWindowFocus: true,
    },
  },
});

interface Options<T> {
  /** Starts with the type of the resource, so that a change of one refreshes its views. */
  key: readonly unknown[];
  load: (signal: AbortSignal) => Promise<T>;
  /** Milliseconds after which it is asked for again while nothing notifies of changes; false for not. May depend on what was answered. */
  every?: number | false | ((data: T | undefined) => number | false);
  enabled?: boolean;
  /** Whether what was shown stays until what was asked for instead is there. */
  keep?: boolean;
}

/** A query that follows the state that `options` reads. */
export function query<T>(options: () => Options<T>) {
  return createQuery<T>(() => {
    const { key, load, every = false, enabled = true, keep = true } = options();
    const poll = (given: number | false) => given && pollInterval(String(key[0]), given, changes.isLive);
    return {
      queryKey: key,
      queryFn: ({ signal }: { signal: AbortSignal }) => load(signal),
      refetchInterval: typeof every === 'function' ? (known: { state: { data: T | undefined } }) => poll(every(known.state.data)) : poll(every),
      enabled,
      ...(keep ? { placeholderData: keepPreviousData } : {}),
    } as never;
  });
}

function pollInterval(word: string, given: number, isLive: boolean): number {
  if (SILENT.has(word)) return given;
  return Math.max(given, isLive ? (POLL_MS[word] ?? RARE_MS) : WITHOUT_CHANGES_MS);
}

/** Refreshes what shows resources of these types. */
export async function changed(...types: string[]): Promise<void> {
  await Promise.all(types.map((type) => queries.invalidateQueries({ queryKey: [type] })));
}
