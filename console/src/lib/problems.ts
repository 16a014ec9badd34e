/** Why something did not work, in the chosen language. */
import { ApiError, OfflineError, sentence } from '../api/errors';
import { i18n, t } from './i18n.svelte';
import { codesOfStatus, problemTexts } from './texts/problems';

export function messageOf(error: unknown): string {
  if (error instanceof OfflineError) return t('error.offline');
  if (error instanceof ApiError && i18n.language === 'de') return inGerman(error);
  return error instanceof Error ? error.message : String(error);
}

/** The interface's reason for a failure, in the chosen language if its code is known. */
export function saidOf(message: string, code: string | null | undefined): string {
  const text = i18n.language === 'de' && code && Object.hasOwn(problemTexts, code) ? problemTexts[code] : undefined;
  return text?.replace('{detail}', () => message) ?? sentence(message);
}

/** An unknown problem is said in the interface's words: they are better than none. */
function inGerman({ code, status, message }: ApiError): string {
  return saidOf(message, code || codesOfStatus[status]);
}
