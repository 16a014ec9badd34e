/**
 * Measures the console in Chromium against a program of its own, and prints a table:
 *
 *     node console/tests/bench.ts PROGRAM [redraw|scroll|heap|large|sizes …]      all of them without arguments
 *
 * - redraw: the main thread's time for each redraw of a chart with 20 series of 2,000 points, while values arrive;
 * - scroll: the time between frames while the log scrolls through 10,000 rows;
 * - heap: the heap in use, after garbage collection, while a chart shows 5,000 points/s for BENCH_MINUTES (30);
 * - large: how long pages of 10,000 channels, 500 agents and 2,000 rules take to open and to use, and their frames at rest;
 * - sizes: the bytes of the first load and of each page.
 *
 * Figures depend on the machine: nothing here fails because one is high.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import createClient, { type Client } from 'openapi-fetch';
import type { paths } from '../src/api/schema.d.ts';
import { fill, large, type Row } from './large.ts';
import type { Stage, Visitor } from './stage.ts';

const PARTS = ['redraw', 'scroll', 'heap', 'large', 'sizes'];
const ADMIN = { email: 'bench@signalbox.local', password: 'measured in a browser' };
const START_MS = 120_000;
const SERIES = 20;
const POINTS = 2_000;
const HISTORY_MS = 50 * 60_000;
const REDRAW_AIM_MS = 16;
const REDRAW_SECONDS = 60;
const ROWS = 10_000;
/** Requests at the same time while rows are made. */
const WRITERS = 16;
const SCROLL_PIXELS = 600;
const FRAME_MS = 1000 / 60;
const POINTS_PER_SECOND = 5_000;
const BATCH_EACH_MS = 200;
/** Batches on their way at most: a server that cannot keep up gets fewer, and the table shows it. */
const IN_FLIGHT = 8;
const MINUTES = Number(process.env.BENCH_MINUTES || 30);
const SAMPLES = 30;
const MB = 1_000_000;

/** A program with servers, a folder and a port of its own. */
class Program {
  private readonly folder = mkdtempSync(join(tmpdir(), 'signalbox-bench-console-'));
  private child: ChildProcess | null = null;
  url = '';

  async start(path: string): Promise<void> {
    const port = await freePort();
    this.url = `http://127.0.0.1:${port}`;
    const log = openSync(this.log, 'w');
    const child = spawn(path, ['up'], {
      stdio: ['ignore', log, log],
      env: {
        ...process.env,
        SIGNALBOX_SERVER__ADDRESS: `127.0.0.1:${port}`,
        SIGNALBOX_STORAGE__FOLDER: join(this.folder, 'data'),
        SIGNALBOX_LIMITS__REQUESTS_PER_MINUTE: '600000',
        SIGNALBOX_LIMITS__REQUEST_BURST: '60000',
        SIGNALBOX_ADMIN_EMAIL: ADMIN.email,
        SIGNALBOX_ADMIN_PASSWORD: ADMIN.password,
      },
    });
    child.on('error', (error) => console.error(`bench-console: ${path} does not start: ${error.message}`));
    this.child = child;
  }

  private get log(): string {
    return join(this.folder, 'log');
  }

  /** A client that is logged in, as soon as the program answers. */
  async client(): Promise<Client<paths>> {
    const client = createClient<paths>({ baseUrl: this.url });
    const deadline = Date.now() + START_MS;
    for (;;) {
      const answer = await client.POST('/api/v1/auth/login', { body: ADMIN }).catch(() => null);
      const token = answer?.data?.access_token;
      if (token) {
        client.use({ onRequest({ request }) { request.headers.set('Authorization', `Bearer ${token}`); } });
        return client;
      }
      if (Date.now() > deadline || this.child?.exitCode !== null) {
        throw new Error(`the program does not answer; it says:\n${readFileSync(this.log, 'utf8')}`);
      }
      await sleep(200);
    }
  }

  async stop(): Promise<void> {
    const { child } = this;
    if (child && child.exitCode === null && child.signalCode === null) {
      const stopped = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGTERM');
      await stopped;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(address && typeof address === 'object' ? address.port : 0));
    });
  });
}

function quantile(values: number[], at: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.round((sorted.length - 1) * at)] ?? Number.NaN;
}

async function channels(client: Client<paths>): Promise<string[]> {
  const ids: string[] = [];
  for (let index = 1; index <= SERIES; index += 1) {
    const { data } = await client.POST('/api/v1/events', { body: { name: `Series ${index}`, type: 'sensor', unit: 'V' } });
    if (!data) throw new Error('a channel could not be made');
    ids.push(data.public_id);
  }
  return ids;
}

function value(index: number, time: number): number {
  return index + Math.sin(time / 60_000 + index) + Math.random() / 10;
}

/** Points of each channel before now, evenly. */
async function history(client: Client<paths>, ids: string[]): Promise<void> {
  const begin = Date.now() - HISTORY_MS;
  for (const [index, id] of ids.entries()) {
    const datapoints = Array.from({ length: POINTS }, (_, at) => {
      // Each channel is measured at times of its own, as in a plant.
      const time = begin + ((at + index / SERIES) * HISTORY_MS) / POINTS;
      return { event_public_id: id, value: value(index, time), timestamp: new Date(time).toISOString() };
    });
    const { response } = await client.POST('/api/v1/datapoints/batch', { body: { datapoints } });
    if (!response.ok) throw new Error(`points were refused: ${response.status}`);
  }
}

/** Sends `rate` points a second, spread over the channels, until it is stopped; gives back how many were recorded. */
function feed(client: Client<paths>, ids: string[], rate: number): () => Promise<number> {
  const each = Math.max(1, Math.round((rate * BATCH_EACH_MS) / 1000 / ids.length));
  const sending = new Set<Promise<unknown>>();
  let recorded = 0;
  const timer = setInterval(() => {
    if (sending.size >= IN_FLIGHT) return;
    const now = Date.now();
    const datapoints = ids.flatMap((id, index) => Array.from({ length: each }, (_, at) => {
      const time = now - ((each - 1 - at + index / SERIES) * BATCH_EACH_MS) / each;
      return { event_public_id: id, value: value(index, time), timestamp: new Date(time).toISOString() };
    }));
    const sent = client.POST('/api/v1/datapoints/batch', { body: { datapoints } })
      .then(({ response }) => { if (response.ok) recorded += datapoints.length; })
      .catch(() => undefined)
      .finally(() => sending.delete(sent));
    sending.add(sent);
  }, BATCH_EACH_MS);
  return async () => {
    clearInterval(timer);
    await Promise.all(sending);
    return recorded;
  };
}

interface TraceEvent { name: string; ph: string; pid: number; tid: number; ts: number; dur?: number; tdur?: number }

/** A task of the main thread in which a chart was drawn, in milliseconds. On a busy machine it is interrupted: `cpu` is less than `whole`. */
interface Redraw { whole: number; cpu: number }

async function redraws({ context, page }: Visitor, seconds: number): Promise<Redraw[]> {
  const session = await context.newCDPSession(page);
  const events: TraceEvent[] = [];
  session.on('Tracing.dataCollected', ({ value }) => events.push(...(value as unknown as TraceEvent[])));
  const includedCategories = ['blink.user_timing', 'disabled-by-default-devtools.timeline'];
  await session.send('Tracing.start', { transferMode: 'ReportEvents', traceConfig: { includedCategories } });
  await sleep(seconds * 1000);
  const complete = new Promise((resolve) => session.once('Tracing.tracingComplete', resolve));
  await session.send('Tracing.end');
  await complete;
  await session.detach();
  const marks = events.filter(({ name }) => name === 'redraw');
  const tasks = events.filter(({ name, ph }) => name === 'RunTask' && ph === 'X');
  const around = marks.map(({ pid, tid, ts }) => tasks.find((task) => task.pid === pid && task.tid === tid && task.ts <= ts && ts <= task.ts + (task.dur ?? 0)));
  return [...new Set(around)].flatMap((task) => (task?.dur === undefined ? [] : [{ whole: task.dur / 1000, cpu: (task.tdur ?? task.dur) / 1000 }]));
}

async function openCharts(stage: Stage, visitor: Visitor, ids: string[]): Promise<void> {
  await stage.go(visitor, `/sensors/charts?c=${ids.join(',')}`);
  await visitor.page.getByRole('img', { name: /^Series 1,/ }).waitFor();
}

async function redraw(stage: Stage, visitor: Visitor, client: Client<paths>, ids: string[]): Promise<Row[]> {
  // The chart clears its canvas once for each redraw.
  await visitor.page.addInitScript(() => {
    const clear = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...area) {
      performance.mark('redraw');
      performance.clearMarks('redraw');
      clear.apply(this, area);
    };
  });
  await openCharts(stage, visitor, ids);
  const stop = feed(client, ids, SERIES * 5);
  const found = await redraws(visitor, REDRAW_SECONDS);
  await stop();
  const [times, cpu] = [found.map(({ whole }) => whole), found.map((one) => one.cpu)];
  const what = `redraw, ${SERIES} series x ${POINTS.toLocaleString('en')} points`;
  return [
    { what: `${what}: redraws`, value: times.length, unit: '' },
    { what: `${what}: median`, value: quantile(times, 0.5), unit: 'ms', aim: REDRAW_AIM_MS },
    { what: `${what}: 95 %`, value: quantile(times, 0.95), unit: 'ms', aim: REDRAW_AIM_MS },
    { what: `${what}: longest`, value: quantile(times, 1), unit: 'ms' },
    { what: `${what}: 95 %, processor time`, value: quantile(cpu, 0.95), unit: 'ms', aim: REDRAW_AIM_MS },
  ];
}

/** Entries of the journal, each of which is an event of the log. */
async function makeRows(client: Client<paths>): Promise<void> {
  let left = ROWS;
  await Promise.all(Array.from({ length: WRITERS }, async () => {
    while (left > 0) {
      left -= 1;
      const { response } = await client.POST('/api/v1/logging', { body: { content: `Row ${left}` } });
      if (!response.ok) throw new Error(`an entry of the journal was refused: ${response.status}`);
    }
  }));
}

async function scroll(stage: Stage, visitor: Visitor, client: Client<paths>): Promise<Row[]> {
  await makeRows(client);
  await stage.go(visitor, '/admin/log');
  const { page } = visitor;
  const rows = page.locator('main ol > li');
  await rows.first().waitFor();
  const begun = performance.now();
  await page.waitForFunction((most) => {
    // Rows out of view are not in the document: the last one has the number of all of them.
    const last = document.querySelector('main ol > li:last-of-type');
    if (Number(last?.getAttribute('aria-posinset')) >= most) return true;
    // The end of the list, in view, loads the next page.
    scrollTo(0, document.documentElement.scrollHeight);
    return false;
  }, ROWS, { timeout: 600_000, polling: 50 });
  const loading = (performance.now() - begun) / 1000;
  const frames = await page.evaluate((pixels) => {
    let scroller: Element = document.querySelector('main ol') ?? document.body;
    while (scroller.parentElement && !(scroller.scrollHeight > scroller.clientHeight && /auto|scroll/.test(getComputedStyle(scroller).overflowY))) {
      scroller = scroller.parentElement;
    }
    scroller.scrollTop = 0;
    return new Promise<number[]>((resolve) => {
      const times: number[] = [];
      let last = 0;
      const step = (now: number) => {
        if (last > 0) times.push(now - last);
        last = now;
        const before = scroller.scrollTop;
        scroller.scrollTop += pixels;
        if (scroller.scrollTop === before && times.length > 1) resolve(times);
        else requestAnimationFrame(step);
      };
      // Two frames for the jump to the start.
      requestAnimationFrame(() => requestAnimationFrame(step));
    });
  }, SCROLL_PIXELS);
  const what = `scroll, ${ROWS.toLocaleString('en')} rows`;
  const late = frames.filter((time) => time > 2 * FRAME_MS).length;
  return [
    { what: `${what}: loading them all`, value: loading, unit: 's' },
    { what: `${what}: frames`, value: frames.length, unit: '' },
    { what: `${what}: frame, median`, value: quantile(frames, 0.5), unit: 'ms' },
    { what: `${what}: frame, 95 %`, value: quantile(frames, 0.95), unit: 'ms' },
    { what: `${what}: frame, longest`, value: quantile(frames, 1), unit: 'ms' },
    { what: `${what}: late by a frame or more`, value: (100 * late) / frames.length, unit: '%' },
  ];
}

async function heap(stage: Stage, visitor: Visitor, client: Client<paths>, ids: string[]): Promise<Row[]> {
  const { context, page } = visitor;
  await openCharts(stage, visitor, ids);
  const session = await context.newCDPSession(page);
  await session.send('Performance.enable');
  const used = async (): Promise<number> => {
    await session.send('HeapProfiler.collectGarbage');
    const { metrics } = await session.send('Performance.getMetrics');
    return (metrics.find(({ name }) => name === 'JSHeapUsedSize')?.value ?? Number.NaN) / MB;
  };
  const stop = feed(client, ids, POINTS_PER_SECOND);
  const begun = performance.now();
  const samples: [number, number][] = [];
  for (let sample = 0; sample <= SAMPLES; sample += 1) {
    await sleep(Math.max(0, begun + (sample * MINUTES * 60_000) / SAMPLES - performance.now()));
    samples.push([(performance.now() - begun) / 60_000, await used()]);
  }
  console.log(`  heap after garbage collection, MB: ${samples.map(([at, size]) => `${at.toFixed(0)} min ${size.toFixed(2)}`).join(', ')}`);
  const recorded = await stop();
  const minutes = (performance.now() - begun) / 60_000;
  // The charts fill first: growth is that of the later two thirds.
  const later = samples.slice(SAMPLES / 3);
  const sizes = samples.map(([, size]) => size);
  const what = `heap, ${MINUTES} min`;
  return [
    { what: `${what}: points recorded`, value: recorded / minutes / 60, unit: '/s', aim: POINTS_PER_SECOND },
    { what: `${what}: at the start`, value: sizes[0] ?? Number.NaN, unit: 'MB' },
    { what: `${what}: at the end`, value: sizes.at(-1) ?? Number.NaN, unit: 'MB' },
    { what: `${what}: most`, value: Math.max(...sizes), unit: 'MB' },
    { what: `${what}: growth per hour`, value: 60 * slope(later), unit: 'MB' },
  ];
}

/** Of the straight line that fits the points best. */
function slope(points: [number, number][]): number {
  const mean = (values: number[]) => values.reduce((sum, one) => sum + one, 0) / values.length;
  const [x, y] = [mean(points.map(([at]) => at)), mean(points.map(([, size]) => size))];
  const [above, below] = points.reduce(([up, down], [at, size]) => [up + (at - x) * (size - y), down + (at - x) ** 2], [0, 0]);
  return above / below;
}

function print({ what, value, unit, aim }: Row): void {
  const shown = value.toLocaleString('en', { maximumFractionDigits: value < 100 ? 1 : 0 });
  console.log(`  ${what.padEnd(52)} ${shown.padStart(10)} ${unit.padEnd(6)}${aim === undefined ? '' : ` aim ${aim.toLocaleString('en')}`}`);
}

async function measure(parts: string[], path: string): Promise<void> {
  const program = new Program();
  let stage: Stage | null = null;
  try {
    await program.start(path);
    const client = await program.client();
    Object.assign(process.env, { SIGNALBOX_URL: program.url, SIGNALBOX_ADMIN: ADMIN.email, SIGNALBOX_PASSWORD: ADMIN.password });
    // Reads its settings when it is loaded.
    const { Stage } = await import('./stage.ts');
    stage = new Stage();
    await stage.open();
    const visitor = await stage.visitor();
    await stage.logIn(visitor);
    const ids = await channels(client);
    await history(client, ids);
    if (parts.includes('redraw')) (await redraw(stage, visitor, client, ids)).forEach(print);
    if (parts.includes('scroll')) (await scroll(stage, visitor, client)).forEach(print);
    if (parts.includes('heap')) (await heap(stage, visitor, client, ids)).forEach(print);
    if (parts.includes('large')) {
      await fill(client);
      (await large(stage, visitor)).forEach(print);
    }
    for (const fault of visitor.faults) console.log(`  fault: ${fault}`);
  } finally {
    await stage?.close();
    await program.stop();
  }
}

const [path, ...named] = process.argv.slice(2);
const unknown = named.filter((part) => !PARTS.includes(part));
if (!path || unknown.length > 0 || !(MINUTES > 0)) {
  console.error(`bench-console: ${unknown.length > 0 ? `there is no part ${unknown.join(', ')}: name some of ${PARTS.join(', ')}` : 'name the program, and BENCH_MINUTES above 0'}`);
  process.exit(1);
}
const parts = named.length > 0 ? named : PARTS;
console.log('\nThe console in Chromium');
if (parts.includes('sizes')) {
  const { weights } = await import('./sizes.ts');
  for (const [what, size, most] of weights()) print({ what: `size, ${what}`, value: size / 1000, unit: 'kB', aim: most / 1000 });
}
if (parts.some((part) => part !== 'sizes')) await measure(parts, path);
