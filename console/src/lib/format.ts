import { i18n, t } from './i18n.svelte';

/** The chosen language as it is written where the browser is: most regions write the day before the month, and the clock has 24 hours. */
function locale(): string {
  const own = navigator.languages.find((one) => one.toLowerCase().startsWith(i18n.language));
  return own ?? (i18n.language === 'de' ? 'de' : 'en-GB');
}

/** Formats are costly to make, and the same few are used for every value and row. */
function remembered<Options, Format>(make: (locale: string, options: Options) => Format): (options: Options) => Format {
  const made = new Map<string, Format>();
  return (options) => {
    const key = i18n.language + JSON.stringify(options);
    const known = made.get(key);
    if (known) return known;
    const format = make(locale(), options);
    made.set(key, format);
    return format;
  };
}

const numbers = remembered((language, options: Intl.NumberFormatOptions) => new Intl.NumberFormat(language, options));
/** A format of dates and times in the chosen language. */
export const dates = remembered((language, options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat(language, options));

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${number(value, digits)} ${UNITS[unit]}`;
}

export function number(value: number, digits?: number): string {
  const options = digits === undefined ? { maximumSignificantDigits: 6 } : { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return numbers(options).format(value);
}

/** A measured value: four significant digits, more for large whole numbers. */
export function measured(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return value.toExponential(3);
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return numbers({ maximumFractionDigits: digits }).format(value);
}

/** A span of time in one or two units: `1 h 20 min`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, seconds);
  if (whole === 0) return '0 s';
  if (whole < 1) return `${Math.round(whole * 1000)} ms`;
  if (whole < MINUTE) return `${whole < 10 ? number(Math.round(whole * 10) / 10) : Math.floor(whole)} s`;
  if (whole < HOUR) return two(whole, MINUTE, 'min', 1, 's');
  if (whole < DAY) return two(whole, HOUR, 'h', MINUTE, 'min');
  return two(whole, DAY, 'd', HOUR, 'h');
}

function two(seconds: number, large: number, largeName: string, small: number, smallName: string): string {
  const first = Math.floor(seconds / large);
  const rest = Math.floor((seconds % large) / small);
  return rest === 0 || first >= 10 ? `${first} ${largeName}` : `${first} ${largeName} ${rest} ${smallName}`;
}

/** How far `time` is from `now`, in one unit: `3 min ago`. */
export function relative(time: string | number | Date, now: number): string {
  const seconds = (now - new Date(time).getTime()) / 1000;
  const size = Math.abs(seconds);
  if (size < 2) return t('now');
  const text =
    size < MINUTE ? `${Math.floor(size)} s`
    : size < HOUR ? `${Math.floor(size / MINUTE)} min`
    : size < DAY ? `${Math.floor(size / HOUR)} h`
    : `${Math.floor(size / DAY)} d`;
  return t(seconds > 0 ? 'ago' : 'in.time', { time: text });
}

/** With the zone: people of several compare what they see. */
export function dateTime(time: string | number | Date, timeZone?: string): string {
  const options = { dateStyle: 'medium', timeStyle: 'long', ...(timeZone ? { timeZone } : {}) } as const;
  return dates(options).format(new Date(time));
}

export function dateOnly(time: string | number | Date): string {
  return dates({ dateStyle: 'full' }).format(new Date(time));
}

export function clock(time: string | number | Date): string {
  return dates({ hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' }).format(new Date(time));
}

export function percent(share: number): string {
  return numbers({ style: 'percent', maximumFractionDigits: 0 }).format(share);
}

/** The first and last characters of a long digest or id. */
export function short(text: string, head = 8): string {
  return text.length <= head + 1 ? text : `${text.slice(0, head)}…`;
}
