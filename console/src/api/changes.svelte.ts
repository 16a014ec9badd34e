/** Which resources change, by one stream for the whole page. It resumes where it was, so that no change is missed. */
import { ask } from './client';
import { connection } from './connection.svelte';
import { session } from './session.svelte';

export interface Change {
  type: string;
  id: string;
  version: number;
  /** True if reads may not show the change yet. */
  eventual?: boolean;
}

interface Message {
  name: string;
  id: string;
  data: string;
}

/** `null` stands for everything. */
type Listener = (change: Change | null) => void;

const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 10_000;
/** The server sends something every 15 s. */
const SILENCE_MS = 40_000;
/** A hidden page gives its connection up, because browsers have few of them for all pages of an origin. */
const HIDDEN_MS = 30_000;

class Changes {
  isLive = $state(false);
  private running: AbortController | null = null;
  private lastId = '';
  private listener: Listener = () => undefined;
  private hiding: ReturnType<typeof setTimeout> | undefined;
  private wake: () => void = () => undefined;

  constructor() {
    connection.onBack(() => this.wake());
    document.addEventListener('visibilitychange', () => this.show(!document.hidden));
  }

  start(listener: Listener): void {
    this.listener = listener;
    this.lastId = '';
    this.open();
  }

  stop(): void {
    this.listener = () => undefined;
    this.close();
  }

  private show(isVisible: boolean): void {
    clearTimeout(this.hiding);
    if (!isVisible) this.hiding = setTimeout(() => this.close(), HIDDEN_MS);
    else if (!this.running && session.token) this.open();
  }

  private open(): void {
    this.running?.abort();
    this.running = new AbortController();
    void this.follow(this.running.signal);
  }

  private close(): void {
    this.running?.abort();
    this.running = null;
    this.isLive = false;
  }

  private async follow(signal: AbortSignal): Promise<void> {
    let retry = FIRST_RETRY_MS;
    while (!signal.aborted) {
      const wasLive = await this.read(signal);
      if (signal.aborted) return;
      this.isLive = false;
      retry = wasLive ? FIRST_RETRY_MS : Math.min(retry * 2, LAST_RETRY_MS);
      await new Promise<void>((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, retry);
      });
    }
  }

  /** Reads one stream to its end; whether there was one. */
  private async read(signal: AbortSignal): Promise<boolean> {
    const ending = new AbortController();
    const end = () => ending.abort();
    signal.addEventListener('abort', end);
    let silence = setTimeout(end, SILENCE_MS);
    try {
      const response = await this.ask(ending.signal);
      if (!response?.body) return false;
      connection.noteAnswer();
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      let text = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return true;
        clearTimeout(silence);
        silence = setTimeout(end, SILENCE_MS);
        const messages = (text + decoder.decode(value, { stream: true })).split('\n\n');
        text = messages.pop() ?? '';
        for (const message of messages) this.take(parse(message));
      }
    } catch {
      return this.isLive;
    } finally {
      clearTimeout(silence);
      signal.removeEventListener('abort', end);
    }
  }

  private async ask(signal: AbortSignal): Promise<Response | null> {
    const headers: Record<string, string> = { Authorization: `Bearer ${session.token ?? ''}` };
    if (this.lastId) headers['Last-Event-ID'] = this.lastId;
    let response: Response;
    try {
      response = await fetch('/api/v1/live', { headers, signal, cache: 'no-store' });
    } catch {
      if (!signal.aborted) connection.noteFailure();
      return null;
    }
    // The login has ended: any request brings up the question for a new one.
    if (response.status === 401) await ask((client) => client.GET('/api/v1/auth/me')).catch(() => undefined);
    return response.ok ? response : null;
  }

  private take({ name, id, data }: Message): void {
    const isFirst = this.lastId === '';
    if (id) this.lastId = id;
    if (name === 'start') {
      this.isLive = true;
      // The shown data may have been read before the stream began.
      if (isFirst) this.listener(null);
    }
    if (name === 'reset') this.listener(null);
    if (name === 'change') this.listener(JSON.parse(data) as Change);
  }
}

function parse(text: string): Message {
  const message: Message = { name: '', id: '', data: '' };
  for (const line of text.split('\n')) {
    const colon = line.indexOf(':');
    const field = line.slice(0, colon);
    const value = line.slice(colon + 1).trimStart();
    if (field === 'event') message.name = value;
    if (field === 'id') message.id = value;
    if (field === 'data') message.data = value;
  }
  return message;
}

export const changes = new Changes();
