/**
 * Does the main job of each service with the client in `clients/typescript`.
 *
 *     node console/tests/main-jobs.ts SETTINGS
 *
 * SETTINGS is JSON: `url`, `email`, `password`, the ids `source` and `destination` of two connected agents, and the paths
 * `source_path` and `destination_path`. Prints what it has found out, as JSON.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { signalbox } from '../../clients/typescript/index.ts';

const WAIT_MS = 60_000;

interface Settings {
  url: string;
  email: string;
  password: string;
  source: number;
  destination: number;
  source_path: string;
  destination_path: string;
}

const settings = JSON.parse(process.argv[2] ?? '{}') as Settings;
const client = signalbox(settings.url);

/** The data of an answer; throws when it is an error. */
function expect<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  if (answer.data === undefined) throw new Error(`${answer.response.status}: ${JSON.stringify(answer.error)}`);
  return answer.data;
}

/** Moves a file by a job and returns the status that the transfer ends with. */
async function files() {
  const job = expect(
    await client.POST('/api/jobs', {
      body: {
        name: 'by a generated client',
        type: 'push',
        source_agent_id: settings.source,
        destination_agent_id: settings.destination,
        source_path: settings.source_path,
        destination_path: settings.destination_path,
      },
    }),
  );
  let transfer = expect(await client.POST('/api/jobs/{id}/run', { params: { path: { id: job.id } } }));
  const deadline = Date.now() + WAIT_MS;
  while (Date.now() < deadline && (transfer.status === 'pending' || transfer.status === 'running')) {
    await sleep(50);
    transfer = expect(await client.GET('/api/transfers/{id}', { params: { path: { id: transfer.id } } }));
  }
  return transfer.status;
}

/** Makes a channel, sends a value to it and reads it back. */
async function sensors() {
  const event = expect(
    await client.POST('/api/v1/events', { body: { name: 'pressure in TypeScript', type: 'sensor', unit: 'bar' } }),
  );
  const datapoint = { value: 1.25, event_public_id: event.public_id };
  expect(await client.POST('/api/v1/datapoints', { body: datapoint }));
  const query = { event_public_id: event.public_id };
  const page = expect(await client.GET('/api/v1/datapoints', { params: { query } }));
  return page.data[0]?.value;
}

/** Has the text of a document extracted. */
async function documents() {
  const page = '<html><body><h1>Minutes</h1><p>All agreed.</p></body></html>';
  const text = expect(
    await client.POST('/api/v1/extract', {
      params: { query: { output_format: 'markdown' } },
      body: { file: '' },
      bodySerializer() {
        const form = new FormData();
        form.append('file', new Blob([page], { type: 'text/html' }), 'minutes.html');
        return form;
      },
    }),
  );
  return text.content;
}

const { email, password } = settings;
const login = expect(await client.POST('/api/v1/auth/login', { body: { email, password } }));
client.use({
  onRequest({ request }) {
    request.headers.set('Authorization', `Bearer ${login.access_token}`);
    return request;
  },
});
console.log(JSON.stringify({ files: await files(), sensors: await sensors(), documents: await documents() }));
