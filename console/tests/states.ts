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

/** A login ends while a form is being filled in: what was typed stays, and is saved after a new login. */
export async function expiry(stage: Stage, visitor: Visitor, password: string): Promise<void> {
  const { page } = visitor;
  await stage.go(visitor, '/sensors/channels');
  await page.getByRole('button', { name: 'New channel' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('Typed before');
  await page.evaluate(() => {
    const key = 'signalbox.session';
    const stored = JSON.parse(localStorage.getItem(key) ?? '{}') as { token: string };
    return fetch('/api/v1/auth/logout', { method: 'POST', headers: { Authorization: `Bearer ${stored.token}` } });
  });
  await stage.excuse(async () => {
    // The first failing request, the page's or its socket's, opens the dialog.
    await page.getByRole('dialog', { name: 'Your login has ended' }).waitFor();
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
