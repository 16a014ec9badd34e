/** Files on their way to the server. They go on while other pages are shown. */
import { newKey } from '../api/client';
import { toApiError } from '../api/errors';
import { session } from '../api/session.svelte';
import { t } from './i18n.svelte';
import { messageOf } from './problems';

export interface Upload {
  id: string;
  name: string;
  size: number;
  /** 0 to 1. */
  share: number;
  error: string | null;
}

/** Uploads at the same time; more wait. */
const AT_ONCE = 3;

type Send<Options> = (file: File, upload: Upload, options: Options) => Promise<void>;

export class Uploads<Options> {
  list = $state<Upload[]>([]);
  private waiting: (() => Promise<void>)[] = [];
  private running = 0;

  private readonly send: Send<Options>;

  constructor(send: Send<Options>) {
    this.send = send;
  }

  add(files: Iterable<File>, options: Options): void {
    for (const file of files) {
      const upload: Upload = { id: newKey(), name: file.name, size: file.size, share: 0, error: null };
      this.list.push(upload);
      this.waiting.push(() => this.begin(file, upload.id, options));
    }
    this.next();
  }

  dismiss(id: string): void {
    this.list = this.list.filter((upload) => upload.id !== id);
  }

  private next(): void {
    while (this.running < AT_ONCE) {
      const begin = this.waiting.shift();
      if (!begin) return;
      this.running += 1;
      void begin().finally(() => {
        this.running -= 1;
        this.next();
      });
    }
  }

  private async begin(file: File, id: string, options: Options): Promise<void> {
    const upload = this.list.find((one) => one.id === id);
    if (!upload) return;
    try {
      await this.send(file, upload, options);
      this.dismiss(id);
    } catch (error) {
      upload.error = messageOf(error);
    }
  }
}

/** Sends a body by XMLHttpRequest, because `fetch` does not report how much of it has gone out. */
export async function sendBody(method: string, url: string, body: FormData | File, upload: Upload): Promise<void> {
  const token = session.token;
  const request = new XMLHttpRequest();
  const ended = new Promise<void>((resolve, reject) => {
    request.upload.onprogress = ({ loaded, total }) => (upload.share = total > 0 ? loaded / total : 0);
    request.onload = () => resolve();
    request.onerror = () => reject(new Error(t('error.offline')));
  });
  request.open(method, url);
  request.setRequestHeader('Idempotency-Key', upload.id);
  if (body instanceof File) request.setRequestHeader('Content-Type', 'application/octet-stream');
  if (token) request.setRequestHeader('Authorization', `Bearer ${token}`);
  request.send(body);
  await ended;
  if (request.status === 401 && token) {
    await session.again(token);
    if (session.token) return sendBody(method, url, body, upload);
  }
  if (request.status >= 300) {
    const headers = { 'x-request-id': request.getResponseHeader('x-request-id') ?? '' };
    const response = new Response(null, { status: request.status, headers });
    throw toApiError(response, parsed(request.responseText));
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
