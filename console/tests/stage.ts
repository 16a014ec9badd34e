/** A browser in front of the running program, by way of a relay that can be cut as a killed gateway would be. */
import { existsSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core';

export const ADMIN = { name: process.env.SIGNALBOX_ADMIN ?? '', password: process.env.SIGNALBOX_PASSWORD ?? '' };
const TARGET = new URL(process.env.SIGNALBOX_URL ?? 'http://127.0.0.1:8080');
const CHROMIUM = ['chromium', 'chromium-browser', 'google-chrome'].map((name) => `/usr/bin/${name}`).find((path) => existsSync(path));
/** The machine may be busy with other tests. */
const TIMEOUT_MS = 60_000;

/** Hands connections on to the program, until it is cut. */
export class Relay {
  private server: Server | null = null;
  private sockets = new Set<Socket>();
  port = 0;

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async open(): Promise<void> {
    const server = createServer((client) => {
      const upstream = connect(Number(TARGET.port), TARGET.hostname);
      for (const [socket, other] of [[client, upstream], [upstream, client]] as const) {
        this.sockets.add(socket);
        socket.on('error', () => other.destroy());
        socket.on('close', () => {
          this.sockets.delete(socket);
          other.destroy();
        });
      }
      client.pipe(upstream).pipe(client);
    });
    await new Promise<void>((resolve) => server.listen(this.port, '127.0.0.1', resolve));
    const address = server.address();
    if (address && typeof address === 'object') this.port = address.port;
    this.server = server;
  }

  async cut(): Promise<void> {
    const closed = new Promise((resolve) => this.server?.close(resolve));
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }
}

export interface Look {
  theme: 'light' | 'dark';
  width: number;
  height: number;
}

export const WIDE: Look = { theme: 'light', width: 1440, height: 900 };

/** A page and what it must not do: report errors, or ask anybody else for anything. */
export interface Visitor {
  context: BrowserContext;
  page: Page;
  faults: string[];
}

export class Stage {
  readonly relay = new Relay();
  private browser: Browser | null = null;
  /** While the relay is cut, failed requests are what is tested. */
  private excused = false;

  async open(): Promise<void> {
    await this.relay.open();
    this.browser = await chromium.launch({ ...(CHROMIUM ? { executablePath: CHROMIUM } : {}), args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  }

  async close(): Promise<void> {
    await this.browser?.close();
    await this.relay.cut();
  }

  async excuse(work: () => Promise<void>): Promise<void> {
    this.excused = true;
    try {
      await work();
    } finally {
      this.excused = false;
    }
  }

  async visitor(look: Look = WIDE, state?: Awaited<ReturnType<BrowserContext['storageState']>>): Promise<Visitor> {
    if (!this.browser) throw new Error('the stage is not open');
    const context = await this.browser.newContext({
      viewport: { width: look.width, height: look.height }, colorScheme: look.theme, locale: 'en-GB', reducedMotion: 'reduce',
      ...(state ? { storageState: state } : {}),
    });
    context.setDefaultTimeout(TIMEOUT_MS);
    const page = await context.newPage();
    const faults: string[] = [];
    page.on('console', (message) => {
      if (message.type() === 'error' && !this.excused) faults.push(`console: ${message.text()} (${page.url()})`);
    });
    page.on('pageerror', (error) => faults.push(`exception: ${error.stack ?? error.message} (${page.url()})`));
    page.on('request', (request) => {
      const { protocol, origin } = new URL(request.url());
      if (['http:', 'https:', 'ws:', 'wss:'].includes(protocol) && origin.replace('ws', 'http') !== this.relay.url) faults.push(`request to ${request.url()}`);
    });
    return { context, page, faults };
  }

  async logIn({ page }: Visitor, name = ADMIN.name, password = ADMIN.password): Promise<void> {
    await page.goto(this.relay.url);
    await page.getByLabel('E-mail or user name').fill(name);
    await page.getByLabel('Password').fill(password);
    await page.getByRole('button', { name: 'Log in', exact: true }).click();
    await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
  }

  async go({ page }: Visitor, address: string): Promise<void> {
    await page.goto(this.relay.url + address);
  }
}

export function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}
