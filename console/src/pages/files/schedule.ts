/** A schedule in words, and its next firing. Seconds are the first of six fields; five fields fire at second 0. */
import { Cron } from 'croner';
import cronstrue from 'cronstrue';
import 'cronstrue/locales/de';
import type { Language } from '../../lib/i18n.svelte';

export interface Meaning {
  words: string;
  next: Date[];
}

const SHOWN = 5;

/** Throws when the expression or the zone is not valid. */
export function meaning(expression: string, timezone: string, language: Language): Meaning {
  const trimmed = expression.trim();
  const fields = trimmed.split(/\s+/).length;
  const six = fields === 5 ? `0 ${trimmed}` : trimmed;
  const next = new Cron(six, { timezone }).nextRuns(SHOWN);
  const words = cronstrue.toString(six, { locale: language, use24HourTimeFormat: true });
  return { words, next };
}
