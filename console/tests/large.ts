/** A large installation: the requests of its pages, how long they take to open, and whether they are idle at rest. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'openapi-fetch';
import type { paths } from '../src/api/schema.d.ts';
import type { Stage, Visitor } from './stage.ts';

export interface Row { what: string; value: number; unit: string; aim?: number }

const CHANNELS = 10_000;
const AGENTS = 500;
const RULES = 2_000;
/** Requests at the same time while they are made. */
const WRITERS = 16;
const BATCH = 5_000;
const REST_MS = 5_000;
const FRAME_AIM_MS = 100;
const ROWS_AIM = 2_000;

async function many(count: number, make: (index: number) => Promise<{ response: Response }>): Promise<void> {
  let next = 0;
  await Promise.all(Array.from({ length: WRITERS }, async () => {
    while (next < count) {
      const index = next;
      next += 1;
      const { response } = await make(index);
      if (!response.ok) throw new Error(`${response.url} answered ${response.status}`);
    }
  }));
}

/** Makes all of it, and gives each channel a value. */
export async function fill(client: Client<paths>): Promise<void> {
  await many(CHANNELS, (index) => client.POST('/api/v1/events', { body: { name: `Plant ${index % 40} – Sensor ${index}`, type: 'sensor', unit: '°C' } }));
  const ids: string[] = [];
  for (let page = 1; ids.length < CHANNELS; page += 1) {
    const { data } = await client.GET('/api/v1/events', { params: { query: { page, page_size: 100 } } });
    if (!data || data.data.length === 0) break;
    ids.push(...data.data.map(({ public_id }) => public_id));
  }
  for (let begin = 0; begin < ids.length; begin += BATCH) {
    const datapoints = ids.slice(begin, begin + BATCH).map((id, index) => ({ event_public_id: id, value: index % 90 }));
    await client.POST('/api/v1/datapoints/batch', { body: { datapoints } });
  }
  await many(AGENTS, (index) => client.POST('/api/agents', { body: { name: `agent-${index}` } }));
  await many(RULES, (index) => client.POST('/api/v1/rules', {
    body: { name: `Rule ${index}`, event_public_id: ids[index % ids.length] ?? '', operator: 'gt', threshold: 95, action_type: 'log' },
  }));
}

/** The longest list in an answer. */
function rowsOf(body: unknown): number {
  if (Array.isArray(body)) return body.length;
  if (body && typeof body === 'object') return Math.max(0, ...Object.values(body).filter(Array.isArray).map((list) => list.length));
  return 0;
}

/** The longest time between two frames, while the page is left alone. */
function rest({ page }: Visitor): Promise<number> {
  return page.evaluate((span) => new Promise<number>((resolve) => {
    let [last, longest, until] = [performance.now(), 0, performance.now() + span];
    const step = (now: number) => {
      longest = Math.max(longest, now - last);
      last = now;
      if (now < until) requestAnimationFrame(step);
      else resolve(longest);
    };
    requestAnimationFrame(step);
  }), REST_MS);
}

const PAGES: [string, string, string][] = [
  ['overview', '/', '.values li'],
  ['channels', '/sensors/channels', 'main li, main tbody tr'],
  ['charts', '/sensors/charts', 'main h1'],
  ['transfers', '/files/transfers', 'main h1'],
  ['agents', '/files/agents', 'main tbody tr'],
  ['jobs', '/files/jobs', 'main h1'],
  ['rules', '/rules', 'main tbody tr'],
  ['new rule', '/rules/new', 'main select option'],
  ['webhooks', '/webhooks', 'main h1'],
  ['log', '/admin/log', 'main ol > li'],
];

/** In an installation that {@link fill} has filled. */
export async function large(stage: Stage, visitor: Visitor): Promise<Row[]> {
  const { page } = visitor;
  const rows: Row[] = [];
  let most = 0;
  const reading: Promise<void>[] = [];
  page.on('response', (response) => {
    if (!response.headers()['content-type']?.includes('json')) return;
    reading.push(response.json().then((body: unknown) => { most = Math.max(most, rowsOf(body)); }, () => undefined));
  });
  for (const [name, address, row] of PAGES) {
    let requests = 0;
    const count = () => { requests += 1; };
    page.on('request', count);
    const begun = performance.now();
    await stage.go(visitor, address);
    await page.locator(row).first().waitFor({ state: 'attached' });
    rows.push({ what: `${name}: first rows`, value: performance.now() - begun, unit: 'ms' });
    await sleep(1_000);
    rows.push({ what: `${name}: longest frame at rest`, value: await rest(visitor), unit: 'ms', aim: FRAME_AIM_MS });
    page.off('request', count);
    rows.push({ what: `${name}: requests in 6 s`, value: requests, unit: '' });
  }
  rows.push(...(await interactions(stage, visitor)));
  await Promise.all(reading);
  rows.push({ what: 'rows of one answer at most', value: most, unit: '', aim: ROWS_AIM });
  return rows.map((one) => ({ ...one, what: `large, ${one.what}` }));
}

async function interactions(stage: Stage, visitor: Visitor): Promise<Row[]> {
  const { page } = visitor;
  const rows: Row[] = [];
  const timed = async (what: string, work: () => Promise<unknown>): Promise<void> => {
    const begun = performance.now();
    await work();
    rows.push({ what, value: performance.now() - begun, unit: 'ms' });
  };
  await stage.go(visitor, '/sensors/channels');
  await page.getByText('Sensor 0', { exact: false }).first().waitFor();
  await timed('channels: filter', async () => {
    await page.getByRole('searchbox').first().fill('Sensor 9999');
    await page.getByText('Sensor 9999').first().waitFor();
  });
  await stage.go(visitor, '/');
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.keyboard.press('/');
  await timed('search', async () => {
    await page.keyboard.type('Sensor 9998');
    await page.getByText('Sensor 9998').first().waitFor();
  });
  await page.keyboard.press('Escape');
  await stage.go(visitor, '/sensors/channels');
  const more = page.getByRole('button', { name: 'Show more' });
  await more.waitFor();
  for (let step = 1; (await more.count()) > 0; step += 1) {
    const shown = await page.locator('.more').innerText();
    await timed(`channels: more (${step})`, async () => {
      await more.click();
      await page.waitForFunction((before) => document.querySelector<HTMLElement>('.more')?.innerText !== before, shown);
    });
  }
  rows.push({ what: 'channels: longest frame at rest, all shown', value: await rest(visitor), unit: 'ms', aim: FRAME_AIM_MS });
  return rows;
}
