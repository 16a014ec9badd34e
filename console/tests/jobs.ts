/** The main job of each service, done by what a person sees and a screen reader names. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { check, type Stage, type Visitor } from './stage.ts';

/** The root of the agent called `source`. */
const FOLDER = process.env.SOURCE_FOLDER ?? '';
const DOCUMENT = process.env.DOCUMENT ?? '';

export async function moveFile(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  for (const name of ['source', 'destination']) {
    await stage.go(visitor, '/files/agents');
    await page.getByRole('button', { name: 'New agent' }).click();
    await page.getByRole('dialog').getByLabel('Name').fill(name);
    await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { name, level: 1 }).waitFor();
    await page.getByRole('button', { name: 'New token' }).click();
    const line = (await page.getByText(/^SIGNALBOX_AGENT_TOKEN=/).textContent()) ?? '';
    await page.getByText('Waiting for it to call …').waitFor();
    console.log(`agent ${/TOKEN=(\S+)/.exec(line)?.[1]} ${name}`);
    await page.getByText('It has called: the agent is online').waitFor();
  }
  writeFileSync(join(FOLDER, 'report.txt'), 'measured\n'.repeat(50_000));
  await stage.go(visitor, '/files/jobs');
  await page.getByRole('button', { name: 'New job' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Report to the archive');
  await dialog.getByLabel('From', { exact: true }).selectOption({ label: 'source (Online)' });
  await dialog.getByLabel('To', { exact: true }).selectOption({ label: 'destination (Online)' });
  await dialog.getByLabel('Path at the source').fill('report.txt');
  await dialog.getByLabel('Path at the destination').fill('archive/report.txt');
  await dialog.getByRole('button', { name: 'Daily' }).click();
  await dialog.getByText(/At 02:30/).waitFor();
  check((await dialog.getByRole('list', { name: 'Next runs' }).getByRole('listitem').count()) === 5, 'five runs are shown');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'Report to the archive', level: 1 }).waitFor();
  await page.getByRole('button', { name: 'Run now' }).click();
  await page.getByRole('region', { name: 'Runs' }).getByText('Completed').waitFor();
  await page.getByRole('link', { name: 'report.txt' }).click();
  await page.getByText('Digest confirmed at the destination').waitFor();
  await page.getByText('Transfer completed').waitFor();
}

/** A file from the browser to an agent. */
export async function sendFile(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/files/transfers');
  await page.getByLabel('Agent that receives it').selectOption({ label: 'destination (Online)' });
  await page.getByLabel('Folder').fill('sent');
  const choosing = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Choose files' }).click();
  await (await choosing).setFiles(DOCUMENT);
  await page.getByRole('link', { name: 'report.pdf' }).click();
  await page.getByRole('heading', { name: 'report.pdf', level: 1 }).waitFor();
  await page.getByText('Uploaded in a browser').waitFor();
  await page.getByText('Digest confirmed at the destination').waitFor();
}

export async function watchSensor(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/sensors/channels');
  for (const [name, type, high] of [['Boiler', 'sensor', '100'], ['Pump', 'actuator', '1']] as const) {
    await stage.go(visitor, '/sensors/channels');
    await page.getByRole('button', { name: 'New channel' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill(name);
    await dialog.getByLabel('Type').selectOption(type);
    await dialog.getByLabel('Unit').fill(type === 'sensor' ? '°C' : '');
    await dialog.getByLabel('Lowest value').fill('0');
    await dialog.getByLabel('Highest value').fill(high);
    if (name === 'Boiler') await dialog.getByLabel('Days values are kept').fill('30');
    await dialog.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { name, level: 1 }).waitFor();
  }
  const pump = page.getByRole('switch', { name: 'Pump' });
  await pump.click();
  await page.getByRole('region', { name: 'Set the value' }).getByText('On', { exact: true }).waitFor();
  check((await pump.getAttribute('aria-checked')) === 'true', 'the switch shows what is recorded');
  await stage.go(visitor, '/sensors/experiments');
  await page.getByRole('button', { name: 'Start experiment' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('First heating');
  await page.getByRole('dialog').getByRole('button', { name: 'Start experiment' }).click();
  await page.getByRole('heading', { name: 'First heating', level: 1 }).waitFor();
  console.log('values Boiler');
  await page.getByRole('img', { name: 'Boiler, °C' }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped').waitFor();
  await keepValues(stage, visitor);
}

/** How long a channel keeps its values: a number of days, for ever, or as long as others. */
async function keepValues(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/sensors/channels');
  await page.getByRole('link', { name: 'Boiler' }).click();
  const shown = page.locator('dt', { hasText: 'Days values are kept' }).locator('+ dd');
  await shown.getByText('30', { exact: true }).waitFor();
  for (const [days, text] of [['0', '∞'], ['', null]] as const) {
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByRole('dialog').getByLabel('Days values are kept').fill(days);
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await (text === null ? shown.waitFor({ state: 'detached' }) : shown.getByText(text, { exact: true }).waitFor());
  }
}

/** Deletes a transfer and a document that have ended, and a channel with its values. */
export async function deleteEnded(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  for (const [list, name] of [['/files/transfers', 'report.txt'], ['/documents', 'report.pdf']] as const) {
    await stage.go(visitor, list);
    await page.getByRole('link', { name }).first().click();
    await page.getByRole('heading', { name, level: 1 }).waitFor();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
    await page.waitForURL((url) => url.pathname === list);
    await page.getByRole('link', { name }).waitFor({ state: 'detached' });
  }
  await stage.go(visitor, '/sensors/channels');
  await page.getByRole('link', { name: 'Boiler' }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByLabel('Delete its values too, for good').check();
  const sent = page.waitForRequest((request) => request.method() === 'DELETE');
  await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
  check(new URL((await sent).url()).searchParams.get('values') === 'true', 'the values are deleted with it');
  await page.waitForURL((url) => url.pathname === '/sensors/channels');
}

export async function guardSensor(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/rules/new');
  await page.getByLabel('Name').fill('Too hot');
  await page.getByLabel('Channel').selectOption({ label: 'Boiler' });
  await page.getByLabel(/^Threshold/).fill('20');
  await page.getByLabel(/^Cooldown/).fill('0');
  await page.getByText(/^It would have fired \d/).waitFor();
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'Too hot', level: 1 }).waitFor();
  await page.getByText('Version 1').waitFor();
}

export async function makeContact(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/contacts');
  await page.getByRole('button', { name: 'New contact' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Night shift');
  await dialog.getByLabel('Mail address').fill('night@example.org');
  await dialog.getByLabel('Quiet hours').check();
  await dialog.getByLabel('Time zone').selectOption({ label: 'Europe/Berlin' });
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'Night shift', level: 1 }).waitFor();
  await page.getByText('22:00–06:00, Europe/Berlin').waitFor();
  await page.getByRole('button', { name: 'Send test' }).click();
  // The service of this test has no mail server, and says so.
  await page.getByRole('region', { name: 'Messages' }).getByText(/No mail server is configured/).waitFor();
  await stage.go(visitor, '/');
  await page.getByRole('region', { name: 'Needs attention' }).getByRole('link', { name: 'Night shift' }).waitFor();
}

export async function answerAlarm(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/rules/new');
  await page.getByLabel('Name').fill('Hot for long');
  await page.getByLabel('Channel').selectOption({ label: 'Boiler' });
  await page.getByLabel(/^Threshold/).fill('20');
  await page.getByLabel('Raise alarms').check();
  await page.getByLabel('Severity').selectOption({ label: 'Critical' });
  await page.getByRole('group', { name: 'Notify' }).getByLabel('Night shift').check();
  await page.getByLabel(/^Message/).fill('{channel} is at {value} {unit}');
  await page.getByText(/\d alarms?$/).waitFor();
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'Hot for long', level: 1 }).waitFor();
  await stage.go(visitor, '/alarms');
  await page.getByRole('row', { name: /Boiler.*Firing · Critical/ }).getByRole('link', { name: 'Boiler' }).click();
  await page.getByRole('heading', { name: 'Boiler', level: 1 }).waitFor();
  await page.getByRole('img', { name: 'Boiler, °C' }).waitFor();
  await page.getByRole('region', { name: 'Notified' }).getByRole('link', { name: 'Night shift' }).waitFor();
  await page.getByRole('button', { name: 'Acknowledge' }).click();
  await page.getByRole('dialog').getByLabel('Comment').fill('The valve is closed.');
  await page.getByRole('dialog').getByRole('button', { name: 'Acknowledge' }).click();
  await page.getByText('The valve is closed.').waitFor();
  await page.getByRole('button', { name: 'Take back the acknowledgement' }).waitFor();
}

export async function makeDashboard(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/dashboards');
  await page.getByRole('button', { name: 'New dashboard' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('Boiler room');
  await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'Boiler room', level: 1 }).waitFor();
  for (const [type, channel] of [['Line chart', 'Boiler'], ['Gauge', 'Boiler'], ['Number', 'Boiler'], ['Actuator', 'Pump']] as const) {
    await page.getByRole('button', { name: 'Add widget' }).first().click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Type').selectOption({ label: type });
    await dialog.getByLabel('Channel').selectOption({ label: channel });
    await dialog.getByLabel('Title').fill(`${type} of it`);
    await dialog.getByRole('button', { name: 'Add widget' }).click();
    await dialog.waitFor({ state: 'detached' });
  }
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByRole('meter', { name: 'Gauge of it' }).waitFor();
  await page.getByRole('switch', { name: 'Pump' }).waitFor();
}

export async function readDocument(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/documents');
  const choosing = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Choose files' }).click();
  await (await choosing).setFiles(DOCUMENT);
  const row = page.getByRole('row', { name: /report\.pdf.*Completed/ });
  await row.waitFor();
  await row.getByRole('link').click();
  await page.getByRole('heading', { name: '2 Messwerte' }).waitFor();
  await page.getByRole('cell', { name: '2,8 kN' }).waitFor();
  const picture = page.getByRole('img', { name: 'Picture of page 1' });
  await picture.waitFor();
  check(await picture.evaluate((image: HTMLImageElement) => image.decode().then(() => image.naturalWidth === 1240)), 'the page is shown beside its text');
  await page.getByRole('button', { name: 'Text only' }).click();
  await picture.waitFor({ state: 'detached' });
  check(new URL(page.url()).searchParams.get('pages') === 'hidden', 'the address says that pages are hidden');
  const downloading = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Markdown' }).click();
  check((await downloading).suggestedFilename() === 'report.md', 'the text is saved under the name of the document');
}

export async function notifyOthers(stage: Stage, visitor: Visitor): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/webhooks');
  await page.getByRole('button', { name: 'New webhook' }).click();
  const dialog = page.getByRole('dialog');
  // Nothing listens there, which is what the page has to show.
  await dialog.getByLabel('Address').fill('http://127.0.0.1:9/hook');
  await dialog.getByLabel('sensor.threshold_exceeded').check();
  await dialog.getByRole('button', { name: 'Make one' }).click();
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'http://127.0.0.1:9/hook' }).waitFor();
  await page.getByRole('button', { name: 'Send test' }).click();
  await page.getByRole('region', { name: 'Deliveries' }).getByText(/attempts/).first().waitFor();
}

export async function addUser(stage: Stage, visitor: Visitor, name: string, password: string): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/admin/users');
  await page.getByRole('button', { name: 'New user' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill(name);
  await dialog.getByLabel('E-mail').fill(`${name}@example.org`);
  await dialog.getByLabel('Password').fill(password);
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('cell', { name: `${name}@example.org` }).waitFor();
}
