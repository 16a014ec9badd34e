/** Documents on their way to the server. */
import { changed } from '../../lib/query';
import { sendBody, Uploads } from '../../lib/uploads.svelte';

interface Options {
  language: string;
  ocr: boolean;
  keep: boolean;
}

export const uploads = new Uploads<Options>(async (file, upload, options) => {
  const body = new FormData();
  body.set('file', file);
  body.set('output_format', 'json');
  // For the pictures of its pages, and what stands where on them.
  body.set('words', 'true');
  body.set('keep_input', 'true');
  body.set('language', options.language);
  body.set('ocr_enabled', String(options.ocr));
  body.set('keep', String(options.keep));
  await sendBody('POST', '/api/v1/jobs', body, upload);
  await changed('documents');
});
