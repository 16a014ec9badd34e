/** Why something did not work, in the chosen language. */
import { ApiError, OfflineError } from '../api/errors';
import { i18n, t } from './i18n.svelte';
import { codesOfStatus, problemTexts } from './texts/problems';

export function messageOf(error: unknown): string {
  if (error instanceof OfflineError) return t('error.offline');
  if (error instanceof ApiError && i18n.language === 'de') return inGerman(error);
  return error instanceof Error ? error.message : String(error);
}

/** An unknown problem is said in the interface's words: they are better than none. */
function inGerman({ code, status, message }: ApiError): string {
  const key = code || (codesOfStatus[status] ?? '');
  const text = Object.hasOwn(problemTexts, key) ? problemTexts[key] : undefined;
  return text?.replace('{detail}', () => message) ?? message;
}
