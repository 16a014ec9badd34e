/** Every page in every look: no finding of axe, no error, no request elsewhere, nothing wider than the window. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import axe from 'axe-core';
import { type Look, type Stage, type Visitor } from './stage.ts';

const LOOKS: Record<string, Look> = {
  'light wide': { theme: 'light', width: 1440, height: 900 },
  'dark narrow': { theme: 'dark', width: 360, height: 740 },
};
const ALL_LOOKS: Record<string, Look> = {
  ...LOOKS,
  'dark wide': { theme: 'dark', width: 1440, height: 900 },
  'light narrow': { theme: 'light', width: 360, height: 740 },
};
/** Where pictures of all pages go, if anywhere. */
const PICTURES = process.env.PICTURES;

/** Addresses, and the heading that says that a page is there. */
export async function addresses({ page }: Visitor, base: string): Promise<[string, string][]> {
  const first = async (list: string, within: string, name = ''): Promise<string> => {
    await page.goto(base + list);
    const link = page.locator(`main a[href^="${within}"]`).filter({ hasText: name }).first();
    await link.waitFor();
    return (await link.getAttribute('href')) ?? '';
  };
  return [
    ['/', 'Overview'],
    ['/files/transfers', 'Files'],
    [await first('/files/transfers', '/files/transfers/', 'report.pdf'), 'report.pdf'],
    ['/files/jobs', 'Files'],
    [await first('/files/jobs', '/files/jobs/', 'Report to the archive'), 'Report to the archive'],
    ['/files/agents', 'Files'],
    [await first('/files/agents', '/files/agents/', 'destination'), 'destination'],
    ['/sensors/channels', 'Sensors'],
    [await first('/sensors/channels', '/sensors/channels/'), ''],
    ['/sensors/charts', 'Sensors'],
    ['/sensors/experiments', 'Sensors'],
    ['/sensors/ways-in', 'Sensors'],
    [await first('/sensors/experiments', '/sensors/experiments/', 'First heating'), 'First heating'],
    ['/dashboards', 'Dashboards'],
    [await first('/dashboards', '/dashboards/', 'Boiler room'), 'Boiler room'],
    ['/alarms', 'Alarms'],
    [await first('/alarms', '/alarms/', 'Boiler'), 'Boiler'],
    ['/rules', 'Rules'],
    ['/rules/new', 'New rule'],
    [await first('/rules', '/rules/0', 'Hot for long'), 'Hot for long'],
    ['/contacts', 'Contacts'],
    [await first('/contacts', '/contacts/', 'Night shift'), 'Night shift'],
    ['/webhooks', 'Webhooks'],
    [await first('/webhooks', '/webhooks/', 'http://127.0.0.1:9/hook'), 'http://127.0.0.1:9/hook'],
    ['/documents', 'Documents'],
    ['/documents/search', 'Documents'],
    [await first('/documents', '/documents/', 'report.pdf'), 'report.pdf'],
    ['/fleet/plugins', 'Fleet'],
    ['/fleet/packages', 'Fleet'],
    ['/fleet/firmware', 'Fleet'],
    ['/admin/log', 'Administration'],
    ['/admin/log?view=timeline', 'Administration'],
    ['/admin/log/1', ''],
    [await first('/admin/log/1', '/admin/log/streams/'), ''],
    ['/admin/journal', 'Administration'],
    ['/admin/health', 'Administration'],
    ['/admin/users', 'Administration'],
    ['/admin/tokens', 'Administration'],
    ['/admin/verification', 'Administration'],
    ['/account', 'Account'],
    ['/nowhere', 'There is no such page'],
  ];
}

export async function sweep(stage: Stage, admin: Visitor): Promise<string[]> {
  const list = await addresses(admin, stage.relay.url);
  const state = await admin.context.storageState();
  const faults: string[] = [];
  // One after the other: two windows of one user supersede each other's back-tests.
  for (const [name, look] of Object.entries(PICTURES ? ALL_LOOKS : LOOKS)) {
    const visitor = await stage.visitor(look, state);
    for (const [address, heading] of list) {
      await visit(stage, visitor, address, heading);
      faults.push(...(await findings(visitor)).map((finding) => `${address}, ${name}: ${finding}`));
      if (PICTURES) await picture(visitor, name, address);
    }
    faults.push(...visitor.faults.map((fault) => `${name}: ${fault}`));
    await visitor.context.close();
  }
  return faults;
}

async function visit(stage: Stage, visitor: Visitor, address: string, heading: string): Promise<void> {
  await stage.go(visitor, address);
  const { page } = visitor;
  await page.getByRole('heading', { level: 1, ...(heading ? { name: heading } : {}) }).waitFor();
  // A loading page has no text to check yet.
  await page.locator('main [aria-label="Loading"]').first().waitFor({ state: 'detached' });
}

async function findings({ page }: Visitor): Promise<string[]> {
  await page.evaluate(axe.source);
  const found = await page.evaluate(async () => {
    const { violations } = await (window as unknown as { axe: typeof axe }).axe.run(document, { resultTypes: ['violations'] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary ?? ''}`).join(' | ')}`);
  });
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  return overflow > 0 ? [...found, `wider than the window by ${overflow} px`] : found;
}

async function picture({ page }: Visitor, look: string, address: string): Promise<void> {
  mkdirSync(PICTURES ?? '', { recursive: true });
  await page.screenshot({ path: join(PICTURES ?? '', `${address.replaceAll(/[^a-z0-9]+/gi, '-')}-${look.replace(' ', '-')}.png`) });
}
