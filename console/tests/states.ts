/** The behaviour of pages when other users, the clock or the network interfere. */
import { check, type Stage, type Visitor } from './stage.ts';

const FOLLOWS_MS = 15_000;

/** Two admins change one rule: the second sees the conflict, loses nothing, and can continue. */
export async function twoAtOnce(stage: Stage, visitor: Visitor): Promise<void> {
  const other = await stage.visitor(undefined, await visitor.context.storageState());
  for (const { page } of [visitor, other]) {
    await page.goto(`${stage.relay.url}/rules`);
    await page.getByRole('link', { name: 'Too hot' }).click();
    await page.getByRole('heading', { name: 'Too hot', level: 1 }).waitFor();
    await page.getByLabel(/^Threshold/).waitFor();
  }
  await visitor.page.getByLabel(/^Threshold/).fill('30');
  await other.page.getByLabel(/^Threshold/).fill('40');
  await visitor.page.getByRole('button', { name: 'Save' }).click();
  await visitor.page.getByText('Version 2').waitFor();
  await other.page.getByRole('button', { name: 'Save' }).click();
  await other.page.getByText('Somebody else has changed this meanwhile.').waitFor();
  check((await other.page.getByLabel(/^Threshold/).inputValue()) === '40', 'what was typed is still there');
  await other.page.getByRole('button', { name: 'Load the newest version' }).click();
  await other.page.getByText('Somebody else has changed this meanwhile.').waitFor({ state: 'detached' });
  check((await other.page.getByLabel(/^Threshold/).inputValue()) === '30', 'the newest version is shown');
  await other.page.getByLabel(/^Threshold/).fill('40');
  await other.page.getByRole('button', { name: 'Save' }).click();
  await other.page.getByText('Version 3').waitFor();
  visitor.faults.push(...other.faults);
  await other.context.close();
}

/** The gateway is killed while a page is open, and restarts: the page says so, keeps its contents, and continues by itself. */
export async function outage(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/files/transfers');
  await page.getByRole('link', { name: 'report.txt' }).waitFor();
  await stage.excuse(async () => {
    console.log('gateway kill');
    await page.getByText('The server does not answer.').waitFor();
    check((await page.getByRole('link', { name: 'report.txt' }).count()) > 0, 'what was shown stays');
    console.log('gateway start');
    await page.getByText('The server does not answer.').waitFor({ state: 'detached' });
    await page.getByText('Live', { exact: true }).waitFor();
  });
}

/** A resource that one user creates appears at once for another user, in the list and on an open page. */
export async function live(stage: Stage, visitor: Visitor): Promise<void> {
  const other = await stage.visitor(undefined, await visitor.context.storageState());
  const { page } = visitor;
  await stage.go(visitor, '/sensors/channels');
  await stage.go(other, '/sensors/channels');
  await other.page.getByRole('link', { name: 'Boiler' }).waitFor();
  await other.page.getByText('Live', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'New channel' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Valve');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'Valve', level: 1 }).waitFor();
  // Lists are asked for once a minute while the stream is there.
  await other.page.getByRole('link', { name: 'Valve' }).waitFor({ timeout: FOLLOWS_MS });
  visitor.faults.push(...other.faults);
  await other.context.close();
}

/** A login ends while a form is being filled in: the input stays, and is saved after a new login. */
export async function expiry(stage: Stage, visitor: Visitor, password: string): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/sensors/channels');
  await page.getByRole('button', { name: 'New channel' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('Typed before');
  await stage.excuse(async () => {
    // From here on, requests of the page are refused.
    await page.evaluate(() => {
      const key = 'signalbox.session';
      const stored = JSON.parse(localStorage.getItem(key) ?? '{}') as { token: string };
      return fetch('/api/v1/auth/logout', { method: 'POST', headers: { Authorization: `Bearer ${stored.token}` } });
    });
    // The first failing request, the page's or its socket's, opens the dialog.
    await page.getByRole('dialog', { name: 'Your login has ended' }).waitFor();
    check(await page.getByLabel('Password').evaluate((field) => field === document.activeElement), 'the password can be typed at once');
    await page.getByLabel('Password').fill(password);
    await page.getByRole('button', { name: 'Log in', exact: true }).click();
    await page.getByRole('dialog', { name: 'Your login has ended' }).waitFor({ state: 'detached' });
  });
  const dialog = page.getByRole('dialog', { name: 'New channel' });
  check((await dialog.getByLabel('Name').inputValue()) === 'Typed before', 'what was typed is still there');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'Typed before', level: 1 }).waitFor();
}

/** A viewer sees what is not allowed, and why. */
export async function roles(stage: Stage, name: string, password: string): Promise<Visitor> {
  const visitor = await stage.visitor();
  const { page } = visitor;
  await stage.logIn(visitor, name, password);
  check((await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Administration' }).count()) === 0, 'a viewer is offered no administration');
  await stage.go(visitor, '/sensors/channels');
  const button = page.getByRole('button', { name: 'New channel (Needs the role operator)' });
  await button.waitFor();
  await button.click({ force: true });
  check((await page.getByRole('dialog').count()) === 0, 'what a role does not allow does nothing');
  // Links lead there all the same; refused data is not even requested, because the browser would report the refusal.
  for (const address of ['/admin/log', '/admin/log/1', '/admin/users', '/admin/verification', '/admin/health', '/fleet/firmware', '/rules', '/contacts', '/webhooks']) {
    await stage.go(visitor, address);
    await page.getByText('Needs the role admin', { exact: true }).waitFor();
  }
  await stage.go(visitor, '/admin/tokens');
  await page.getByRole('button', { name: 'New token', exact: true }).waitFor();
  check((await page.getByRole('link', { name: 'Event log' }).count()) === 0, 'pages for other roles are not offered');
  return visitor;
}

/** Everything that the keyboard does. */
export async function keyboard(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/');
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
  await page.keyboard.press('g');
  await page.keyboard.press('f');
  await page.getByRole('heading', { name: 'Files', level: 1 }).waitFor();
  await page.getByRole('link', { name: 'report.txt' }).first().waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'report.pdf', level: 1 }).waitFor();
  await page.keyboard.press('/');
  await page.getByRole('combobox', { name: 'Search everything' }).fill('boiler');
  await page.getByRole('option', { name: /^Boiler/ }).first().waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: /Boiler/, level: 1 }).waitFor();
}

/** A request of the interface in the name of the user of a page. */
async function ask({ page }: Visitor, method: string, path: string, body?: unknown): Promise<Record<string, string>> {
  return page.evaluate(async ([method, path, body]) => {
    const { token } = JSON.parse(localStorage.getItem('signalbox.session') ?? '{}') as { token: string };
    const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
    const response = await fetch(path, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status}`);
    return response.status === 204 ? {} : ((await response.json()) as Record<string, string>);
  }, [method, path, body] as const);
}

const ENTRIES = 450;
const BUSY = 8;
/** More than a row has, less than a window. */
const ROW_PX = 100;

/** In the page: scrolls to the top just before an answer is used that has the text in `scrollTopWith`. */
function scrollsWithAnAnswer(): void {
  const real = globalThis.fetch;
  globalThis.fetch = async (...request) => {
    const answer = await real(...request);
    const text: unknown = Reflect.get(globalThis, 'scrollTopWith');
    if (typeof text !== 'string' || !answer.ok || !answer.url.includes('/log?')) return answer;
    const body = await answer.text();
    if (body.includes(text)) {
      Reflect.deleteProperty(globalThis, 'scrollTopWith');
      scrollTo(0, 0);
    }
    return new Response(body, answer);
  };
}

/** Thousands of rows are a few in the document: keys, focus and the place that is read are as if all of them were there. */
export async function longLog(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  const write = (content: string) => ask(visitor, 'POST', '/api/v1/logging', { content });
  for (let made = 0; made < ENTRIES; made += BUSY) await Promise.all(Array.from({ length: BUSY }, () => write('Row')));
  await page.addInitScript(scrollsWithAnAnswer);
  await stage.go(visitor, '/admin/log');
  const list = page.getByRole('list', { name: 'Events' });
  const rows = list.getByRole('listitem');
  await rows.first().waitFor();
  await page.waitForFunction((most) => {
    scrollTo(0, document.documentElement.scrollHeight);
    return Number(document.querySelector('main ol > li:last-of-type')?.getAttribute('aria-posinset')) >= most;
  }, ENTRIES);
  check((await rows.count()) < ENTRIES / 2, 'rows out of view are not in the document');
  await page.evaluate(() => scrollTo(0, 0));
  await list.locator('[aria-posinset="1"]').waitFor();
  for (let pressed = 0; pressed < 40; pressed += 1) await page.keyboard.press('j');
  const focused = () => page.evaluate(() => document.activeElement?.closest('li')?.getAttribute('aria-posinset'));
  check((await focused()) === '40', `j moves to the next row, at last to ${await focused()}`);
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await list.locator('[aria-posinset="41"]').waitFor();
  await page.keyboard.press('j');
  check((await focused()) === '41', `the focus stays while the page scrolls, and is at ${await focused()}`);
  // The row in the middle of the window, and where it stands.
  const middle = () => page.evaluate(() => {
    const row = document.elementsFromPoint(innerWidth / 2, innerHeight / 2).find((element) => element.matches('li'));
    return { name: row?.querySelector('a')?.textContent, top: row?.getBoundingClientRect().top ?? 0, size: Number(row?.getAttribute('aria-posinset')) };
  });
  const before = await middle();
  await write('Fresh');
  await page.waitForFunction((size) => {
    const row = document.elementsFromPoint(innerWidth / 2, innerHeight / 2).find((element) => element.matches('li'));
    return Number(row?.getAttribute('aria-posinset')) > size;
  }, before.size);
  const after = await middle();
  check(before.name === after.name && Math.abs(before.top - after.top) < 2, `a new event moves what is read: ${JSON.stringify([before, after])}`);
  // An event that arrives in the frame in which somebody scrolls up does not take the page back.
  await page.evaluate(() => Object.assign(globalThis, { scrollTopWith: 'Together' }));
  await write('Together');
  await page.waitForFunction(() => !Reflect.has(globalThis, 'scrollTopWith'));
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  await list.locator('[aria-posinset="1"]').waitFor({ timeout: FOLLOWS_MS });
  check((await page.evaluate(() => scrollY)) < ROW_PX, `the page stays where it was scrolled to, and is at ${await page.evaluate(() => scrollY)}`);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Log entry written', level: 1 }).waitFor();

  await stage.go(visitor, '/admin/journal');
  for (const shown of ['100 of ', '200 of ']) {
    await page.getByRole('button', { name: 'Show more' }).click();
    await page.getByText(shown).waitFor();
  }
}

const VERSIONS = 120;

/** A rule that was changed more often than one page of its history has versions: differences and restoring work for the oldest. */
export async function longHistory(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/rules');
  const { public_id: channel } = await ask(visitor, 'POST', '/api/v1/events', { name: 'Often changed', type: 'sensor', unit: 'bar' });
  const { public_id: id } = await ask(visitor, 'POST', '/api/v1/rules', {
    name: 'Often changed', event_public_id: channel, operator: 'gt', threshold: 1, action_type: 'log', cooldown_seconds: 60,
  });
  for (let version = 2; version <= VERSIONS; version += 1) await ask(visitor, 'PUT', `/api/v1/rules/${id}`, { threshold: version });
  await stage.go(visitor, `/rules/${id}`);
  const history = page.getByRole('region', { name: 'History' });
  await history.getByText(`100 of ${VERSIONS}`).waitFor();
  const restore = (version: number) => page.getByRole('button', { name: `Restore Version ${version}`, exact: true });
  check((await restore(VERSIONS - 1).count()) === 1, 'all versions but the present one can be restored');
  check((await restore(2).count()) === 0, 'the oldest versions are not loaded before they are asked for');
  await history.getByRole('button', { name: 'Show more' }).click();
  await history.getByText(`${VERSIONS} entries`).waitFor();
  const second = history.getByRole('listitem').filter({ has: restore(2) });
  check(/threshold\s*1\s*2/.test(await second.innerText()), `the oldest change is shown as ${await second.innerText()}`);
  const asked = page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/restore'));
  await restore(2).click();
  await page.getByRole('dialog', { name: 'Restore version 2?' }).getByRole('button', { name: 'Restore' }).click();
  check((await asked).postDataJSON().version === 2, 'the version that was chosen is restored');
  await history.getByText('restored from version 2').waitFor();
  await history.getByText(`${VERSIONS + 1} entries`).waitFor();
  check((await page.getByLabel(/^Threshold/).inputValue()) === '2', 'the form shows what was restored');
}

const LISTED = 20;
const FAILED = LISTED + 2;

/** More failures of a kind than the overview lists: it counts all of them, and says where the others are. */
export async function manyFailures(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/documents');
  await page.evaluate(async (count) => {
    const { token } = JSON.parse(localStorage.getItem('signalbox.session') ?? '{}') as { token: string };
    for (let made = 0; made < count; made += 1) {
      const body = new FormData();
      body.append('file', new Blob([`%PDF-1.7 and no more ${made}`]), `damaged ${made}.pdf`);
      const response = await fetch('/api/v1/jobs', { method: 'POST', headers: { Authorization: `Bearer ${token}` }, body });
      if (!response.ok) throw new Error(`a document was refused: ${response.status}`);
    }
  }, FAILED);
  await stage.go(visitor, '/');
  const attention = page.getByRole('region', { name: 'Needs attention' });
  const rest = attention.getByRole('link', { name: '2 more documents could not be read' });
  await rest.waitFor();
  check((await attention.getByRole('link', { name: /^damaged / }).count()) === LISTED, 'some failures are listed');
  await rest.click();
  await page.getByText(`${FAILED} entries`).waitFor();
}

/** Names and problems in German. */
export async function german(stage: Stage, visitor: Visitor): Promise<void> {
  const other = await stage.visitor(undefined, await visitor.context.storageState());
  await other.page.addInitScript(() => localStorage.setItem('signalbox.language', 'de'));
  await stage.go(other, '/admin/log');
  await other.page.getByRole('combobox', { name: 'Ereignis' }).fill('Kanal angelegt');
  await other.page.getByRole('combobox', { name: 'Ereignis' }).press('Enter');
  await other.page.waitForURL(/type=channel_created/);
  await other.page.getByRole('listitem').getByText('Kanal angelegt').first().waitFor();
  // Reasons whose codes are known are said in German, in lists, in their pages and in the log.
  const reason = 'Das Dokument ist beschädigt';
  await stage.go(other, '/documents?status=failed');
  const choosing = other.page.waitForEvent('filechooser');
  await other.page.getByRole('button', { name: 'Dateien wählen' }).click();
  await (await choosing).setFiles({ name: 'damaged.pdf', mimeType: 'application/pdf', buffer: Buffer.from('%PDF-1.7 and no more') });
  await other.page.getByText(reason).first().waitFor();
  await other.page.getByRole('link', { name: 'damaged.pdf' }).click();
  await other.page.getByRole('alert').getByText(reason).waitFor();
  await stage.go(other, '/admin/log?type=extraction_failed');
  await other.page.getByRole('listitem').getByText(reason).first().waitFor();
  await stage.excuse(async () => {
    await stage.go(other, '/sensors/channels/00000000-0000-0000-0000-000000000000');
    await other.page.getByText('Das gibt es nicht, oder es gehört jemand anderem.').waitFor();
  });
  visitor.faults.push(...other.faults);
  await other.context.close();
}

/** Another user deletes what a page shows: the page says so, and keeps what it has. */
export async function deletion(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  const { public_id: id } = await ask(visitor, 'POST', '/api/v1/events', { name: 'Short-lived', type: 'sensor' });
  await stage.go(visitor, `/sensors/channels/${id}`);
  await page.getByRole('heading', { name: 'Short-lived', level: 1 }).waitFor();
  await stage.excuse(async () => {
    await ask(visitor, 'DELETE', `/api/v1/events/${id}`);
    await page.getByText('Somebody has deleted this meanwhile.').waitFor();
    check((await page.getByRole('heading', { name: 'Short-lived', level: 1 }).count()) === 1, 'what was shown stays');
    await stage.go(visitor, '/');
  });
}

/** The browser's clock is three hours ahead: ages and moving ranges go by the server's. */
export async function wrongClock(stage: Stage, visitor: Visitor): Promise<void> {
  const other = await stage.visitor(undefined, await visitor.context.storageState());
  await other.page.addInitScript(() => {
    const ahead = 3 * 3_600_000;
    const real = Date;
    const now = () => real.now() + ahead;
    window.Date = new Proxy(real, {
      construct: (target, given: []) => (given.length === 0 ? new target(now()) : new target(...given)),
      get: (target, name) => (name === 'now' ? now : (Reflect.get(target, name) as unknown)),
    });
  });
  console.log('values Boiler');
  await stage.go(other, '/sensors/channels');
  await other.page.getByRole('row', { name: /Boiler/ }).getByText(/^(now|\d+ (s|min) ago)$/).waitFor();
  await other.page.getByRole('link', { name: 'Boiler' }).click();
  await other.page.getByRole('img', { name: 'Boiler, °C' }).waitFor();
  check((await other.page.getByText('No values in this range.').count()) === 0, 'the chart shows the last hour of the server');
  visitor.faults.push(...other.faults);
  await other.context.close();
}

/** Somebody else logs in in another tab: the page of the former user is not shown to them, and what was typed is not sent in their name. */
export async function otherUser(stage: Stage, name: string, password: string): Promise<string[]> {
  const first = await stage.visitor();
  // Requests of the ended login are refused, which browsers report as errors.
  await stage.excuse(async () => {
    await stage.logIn(first);
    await stage.go(first, '/admin/users');
    await first.page.getByRole('button', { name: 'New user' }).click();
    const second = await first.context.newPage();
    await second.goto(stage.relay.url);
    await second.getByRole('button', { name: /^Account: / }).click();
    await second.getByRole('menuitem', { name: 'Log out' }).click();
    await first.page.getByRole('button', { name: 'Log in', exact: true }).waitFor();
    await second.getByLabel('E-mail or user name').fill(name);
    await second.getByLabel('Password').fill(password);
    await second.getByRole('button', { name: 'Log in', exact: true }).click();
    await first.page.getByRole('button', { name: `Account: ${name}` }).waitFor();
    check((await first.page.getByRole('dialog').count()) === 0, 'the form of the former user is gone');
    await first.page.getByText('Needs the role admin', { exact: true }).waitFor();
  });
  await first.context.close();
  return first.faults;
}

/** Names as people and attackers write them, for the pages that are looked at afterwards. */
export const HOSTILE = [
  '<img src=x onerror="document.title=\'taken\'"><script>document.title=\'taken\'</script>',
  `${'Unbreakable'.repeat(20)}`,
  'مستشعر الضغط \u202Egnp.exe',
  '{{constructor.constructor("alert(1)")()}} ${7*7} %s \'"; DROP TABLE',
];

/** Addresses that somebody sends to a user of the console. */
const LINKS = [
  '/%E0%A4%A', '/sensors/charts?range=99999999999999999d&c=%00,../../x,none', '/sensors/charts?from=-271821-04-20&to=%2B275760-09-13',
  '/sensors/channels?q=%27%22%3E%3Cscript%3E&type=constructor', '/admin/log?stream=__proto__&view=constructor&at=%F0%9F%92%A9', '/files/jobs/constructor',
  '/files/transfers/..%2F..%2Fapi', '/sensors/experiments/..%2F..%2F..?with=..%2F..', '//example.org/', '/javascript:alert(1)', '/dashboards/x?at=javascript:alert(1)',
];

/** Texts and addresses of other people are shown as text, lead to no other site and break no page. */
export async function hostility(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/');
  for (const name of HOSTILE) {
    const { public_id: id } = await ask(visitor, 'POST', '/api/v1/events', { name, type: 'sensor', unit: '<b>' });
    for (const value of [1e308, -1e308, 5e-324]) await ask(visitor, 'POST', '/api/v1/datapoints', { event_public_id: id, value });
    await ask(visitor, 'POST', '/api/v1/rules', { name, event_public_id: id, operator: 'gt', threshold: 1e300, action_type: 'log', cooldown_seconds: 60 });
    await ask(visitor, 'POST', '/api/agents', { name: name.slice(0, 200), description: name });
    await stage.go(visitor, `/sensors/channels/${id}`);
    await page.getByRole('img', { name: `${name}, <b>` }).waitFor();
    check((await page.title()) !== 'taken', 'a name is not taken as markup');
  }
  await stage.go(visitor, '/sso-callback?error=x&error_description=Call+0900+123456');
  await page.getByText('The login did not succeed.').waitFor();
  check((await page.getByText('0900').count()) === 0, 'an address writes no text of the page');
  await stage.excuse(async () => {
    for (const link of LINKS) {
      await stage.go(visitor, link);
      await page.getByRole('heading', { level: 1 }).or(page.getByRole('alert')).first().waitFor();
      check(new URL(page.url()).origin === stage.relay.url, `${link} leads to ${page.url()}`);
    }
    // The refusal of the last one has arrived.
    await page.getByRole('alert').first().waitFor();
  });
}
