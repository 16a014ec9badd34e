/**
 * Uses the console as people do: `node console/tests/run.ts` against the program at SIGNALBOX_URL, with the admin that
 * SIGNALBOX_ADMIN and SIGNALBOX_PASSWORD name. A line on its output asks its caller for a step that a browser cannot do:
 * `agent TOKEN NAME` to start an agent, `values CHANNEL` to record some, `gateway restart` to kill the program and
 * start it again at its address. PICTURES names a folder for pictures of every page. Ends with 0, or with 1 and what did
 * not hold.
 */
import { addUser, answerAlarm, deleteEnded, guardSensor, makeContact, makeDashboard, moveFile, notifyOthers, readDocument, sendFile, watchSensor } from './jobs.ts';
import { sweep } from './pages.ts';
import { sizes } from './sizes.ts';
import { ADMIN, Stage, type Visitor } from './stage.ts';
import { deletion, expiry, german, hostility, keyboard, live, longHistory, longLog, manyFailures, otherUser, outage, roles, twoAtOnce, wrongClock } from './states.ts';

const VIEWER = 'grace';
const stage = new Stage();
const faults: string[] = [];

async function step(name: string, work: () => Promise<unknown>, visitor?: Visitor): Promise<void> {
  const begun = performance.now();
  try {
    await work();
  } catch (error) {
    const fault = `${name}: ${error instanceof Error ? error.message : String(error)}`;
    faults.push(fault);
    const shown = await visitor?.page.locator('body').innerText().catch(() => '');
    console.error(`${fault}\nat ${visitor?.page.url()}; the page says:\n${shown}`);
  }
  console.error(`${((performance.now() - begun) / 1000).toFixed(1)} s  ${name}`);
}

await stage.open();
const admin = await stage.visitor();
await step('log in', () => stage.logIn(admin), admin);
await step('move a file', () => moveFile(stage, admin), admin);
await step('send a file', () => sendFile(stage, admin), admin);
await step('watch a sensor', () => watchSensor(stage, admin), admin);
await step('guard a sensor', () => guardSensor(stage, admin), admin);
await step('make a dashboard', () => makeDashboard(stage, admin), admin);
await step('read a document', () => readDocument(stage, admin), admin);
await step('notify others', () => notifyOthers(stage, admin), admin);
await step('add a user', () => addUser(stage, admin, VIEWER, ADMIN.password), admin);
// Two windows of one user supersede each other's back-tests: answers that browsers report as errors.
await step('two at once', () => stage.excuse(() => twoAtOnce(stage, admin)), admin);
await step('make a contact', () => makeContact(stage, admin), admin);
await step('answer an alarm', () => answerAlarm(stage, admin), admin);
await step('live', () => live(stage, admin), admin);
await step('deletion', () => deletion(stage, admin), admin);
await step('wrong clock', () => wrongClock(stage, admin), admin);
await step('keyboard', () => keyboard(stage, admin), admin);
await step('outage', () => outage(stage, admin), admin);
await step('roles', async () => {
  const viewer = await roles(stage, VIEWER, ADMIN.password);
  faults.push(...viewer.faults);
  await viewer.context.close();
});
await step('other user', async () => faults.push(...(await otherUser(stage, VIEWER, ADMIN.password))));
await step('long log', () => longLog(stage, admin), admin);
await step('long history', () => longHistory(stage, admin), admin);
await step('many failures', () => manyFailures(stage, admin), admin);
await step('german', () => german(stage, admin), admin);
await step('hostility', () => hostility(stage, admin), admin);
await step('sizes', () => Promise.resolve(faults.push(...sizes())));
await step('every page', async () => faults.push(...(await sweep(stage, admin))));
await step('delete what has ended', () => deleteEnded(stage, admin), admin);
await step('expiry', () => expiry(stage, admin, ADMIN.password), admin);
faults.push(...admin.faults);
await stage.close();

for (const fault of faults) console.error(`FAULT ${fault}`);
process.exit(faults.length > 0 ? 1 : 0);
