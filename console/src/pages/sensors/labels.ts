import { t } from '../../lib/i18n.svelte';

/** Labels as text, one key=value a line. */
export function labelsText(labels: Record<string, string>): string {
  return Object.entries(labels).map(([key, value]) => `${key}=${value}`).join('\n');
}

/** The labels that the text names; an error for the first line without a key. */
export function parsedLabels(text: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.trim());
  return Object.fromEntries(lines.map((line): [string, string] => {
    const at = line.indexOf('=');
    if (at < 1) throw new Error(t('sensors.labels.wrong', { line }));
    return [line.slice(0, at).trim(), line.slice(at + 1)];
  }));
}
