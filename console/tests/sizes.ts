/** How much a browser loads, as compressed as it travels: from the list of what each built file needs. */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

interface Chunk {
  file: string;
  name?: string;
  isDynamicEntry?: boolean;
  imports?: string[];
  css?: string[];
}

const BUILT = join(import.meta.dirname, '../assets/built');
const KB = 1000;
const MOST = { login: 60 * KB, first: 150 * KB, page: 60 * KB };
const ENTRY = 'index.html';
const SHELL = 'src/Shell.svelte';
const FIRST_PAGE = 'src/pages/overview/Overview.svelte';

const manifest = JSON.parse(readFileSync(join(BUILT, '.vite/manifest.json'), 'utf8')) as Record<string, Chunk>;

/** The files that `chunk` needs, itself included. */
function needs(chunk: string, found = new Set<string>()): Set<string> {
  const { file, css = [], imports = [] } = manifest[chunk] ?? { file: '' };
  if (found.has(file)) return found;
  for (const name of [file, ...css]) found.add(name);
  for (const name of imports) needs(name, found);
  return found;
}

function weigh(files: Iterable<string>): number {
  return [...files].reduce((sum, name) => sum + statSync(join(BUILT, `${name}.br`)).size, 0);
}

/** Each load with its size and its limit, in bytes. */
export function weights(): [string, number, number][] {
  const login = new Set([...needs(ENTRY), 'index.html']);
  const first = new Set([...login, ...needs(SHELL), ...needs(FIRST_PAGE)]);
  const pages = Object.keys(manifest).filter((name) => manifest[name]?.isDynamicEntry && name !== SHELL && name !== FIRST_PAGE);
  return [
    ['the log-in', weigh(login), MOST.login],
    ['the first load', weigh(first), MOST.first],
    ...pages.map((name): [string, number, number] => [name, weigh([...needs(name)].filter((file) => !first.has(file))), MOST.page]),
  ];
}

export function sizes(): string[] {
  const all = weights();
  for (const [what, size] of all) console.error(`${String(size).padStart(7)} bytes  ${what}`);
  return all.filter(([, size, most]) => size > most).map(([what, size, most]) => `${what} is ${size} bytes, more than ${most}`);
}
