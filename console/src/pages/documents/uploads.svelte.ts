/** Documents on their way to the server. */
import { changed } from '../../lib/query';
import { sendBody, Uploads } from '../../lib/uploads.svelte';

interface Options {
  language: string;
  ocr: boolean;
}

export const uploads = new Uploads<Options>(async (file, upload, options) => {
  const body = new FormData();
  body.set('file', file);
  body.set('output_format', 'json');
  body.set('language', options.language);
  body.set('ocr_enabled', String(options.ocr));
  await sendBody('POST', '/api/v1/jobs', body, upload);
  await changed('documents');
});
