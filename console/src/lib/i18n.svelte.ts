import { texts } from './texts';

export type Language = 'en' | 'de';
export type TextKey = keyof typeof texts;

const STORED = 'signalbox.language';

function preferred(): Language {
  const stored = localStorage.getItem(STORED);
  if (stored === 'en' || stored === 'de') return stored;
  return navigator.language.toLowerCase().startsWith('de') ? 'de' : 'en';
}

class I18n {
  language = $state<Language>(preferred());

  choose(language: Language): void {
    this.language = language;
    localStorage.setItem(STORED, language);
    document.documentElement.lang = language;
  }
}

export const i18n = new I18n();
document.documentElement.lang = i18n.language;

/** The text in the chosen language, of its English and its German form. */
export function pick([english, german]: readonly string[]): string {
  return (i18n.language === 'de' ? german : english) ?? '';
}

/** The text for `key` in the chosen language; a count of one has a text of its own where its key ends in `.one`. */
export function t(key: TextKey, values: Record<string, string | number> = {}): string {
  const single = `${key}.one`;
  const text = pick(texts[values.count === 1 && single in texts ? (single as TextKey) : key]);
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** The text for a word that the interface uses, such as a status; unknown words are shown as they are. */
export function word(name: string): string {
  const key = `word.${name}`;
  return key in texts ? t(key as TextKey) : name.replaceAll('_', ' ');
}
