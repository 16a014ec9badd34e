/** Files that are sent from the browser to an agent: each becomes a transfer, whose file is then uploaded. */
import { ask } from '../../api/client';
import { changed } from '../../lib/query';
import { sendBody, Uploads } from '../../lib/uploads.svelte';

interface Target {
  agent: number;
  folder: string;
}

export const uploads = new Uploads<Target>(async (file, upload, { agent, folder }) => {
  const path = [folder.replace(/\/+$/, ''), file.name].filter(Boolean).join('/');
  const body = { source_agent_id: null, destination_agent_id: agent, destination_path: path, filename: file.name, size: file.size };
  const header = { 'Idempotency-Key': upload.id };
  const { id } = await ask((http) => http.POST('/api/transfers', { params: { header }, body }));
  await changed('transfers');
  await sendBody('PUT', `/api/transfers/${id}/content?filename=${encodeURIComponent(file.name)}`, file, upload);
  await changed('transfers');
});
