/** Live values of channels, by one socket for the whole page, kept as the newest of each channel. */
import { SvelteMap } from 'svelte/reactivity';
import { ask } from './client';
import { connection } from './connection.svelte';
import { session } from './session.svelte';

export interface Reading {
  value: number;
  /** Milliseconds since 1970. */
  time: number;
}

interface Message {
  type: string;
  datapoints?: { event_public_id: string; value: number; timestamp: string }[];
}

type Listener = (channel: string, reading: Reading) => void;

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;
const PING_MS = 25_000;
/** A ping is answered at once: a socket that does not has no other end any more, as after a laptop slept. */
const ANSWER_MS = 10_000;
const CHECK_MS = 5_000;
const LOGIN_ENDED = 1008;
/** Channels of one request for newest values. */
const AT_ONCE = 100;

class LiveValues {
  readonly newest = new SvelteMap<string, Reading>();
  state = $state<'off' | 'connecting' | 'live'>('off');
  private socket: WebSocket | null = null;
  private retry = FIRST_RETRY_MS;
  private gathered = new Map<string, Reading>();
  private drawing = false;
  private listeners = new Set<Listener>();
  /** Channels that have been shown: there may be thousands of others. */
  private needed = new Set<string>();

  /** Every value that arrives, in its order; gives back how to stop. */
  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  start(): void {
    if (this.state !== 'off') return;
    void this.open();
  }

  stop(): void {
    this.state = 'off';
    this.socket?.close();
    this.socket = null;
  }

  /** Has the newest values of these channels, also of those that are silent now. */
  need(channels: string[]): void {
    const fresh = channels.filter((channel) => channel && !this.needed.has(channel));
    for (const channel of fresh) this.needed.add(channel);
    if (this.state === 'live') this.load(fresh).catch(() => undefined);
  }

  private async load(channels: string[]): Promise<void> {
    for (let begin = 0; begin < channels.length; begin += AT_ONCE) {
      const query = { event_public_id: channels.slice(begin, begin + AT_ONCE).join(',') };
      const points = await ask((client) => client.GET('/api/v1/datapoints/latest', { params: { query } }));
      for (const { event_public_id, value, timestamp } of points) {
        this.take(event_public_id, { value, time: Date.parse(timestamp) });
      }
    }
    this.draw();
  }

  private async open(): Promise<void> {
    const token = session.token;
    if (!token) return;
    this.state = 'connecting';
    const address = `${location.origin.replace(/^http/, 'ws')}/ws/datapoints/stream`;
    const socket = new WebSocket(address, ['signalbox', `bearer.${token}`]);
    this.socket = socket;
    // By the time of day, which continues while a laptop sleeps.
    let heard = Date.now();
    let pinged = 0;
    const checking = setInterval(() => {
      const now = Date.now();
      const isWaiting = pinged > heard;
      if (isWaiting && now - pinged > ANSWER_MS) {
        // Closing waits for the other end, which is not there.
        socket.onclose = socket.onmessage = null;
        socket.close();
        ended();
      } else if (!isWaiting && now - heard > PING_MS && socket.readyState === WebSocket.OPEN) {
        pinged = now;
        socket.send('{"type":"ping"}');
      }
    }, CHECK_MS);
    const ended = () => {
      clearInterval(checking);
      if (this.socket !== socket || this.state === 'off') return;
      this.state = 'connecting';
      setTimeout(() => this.socket === socket && this.state !== 'off' && void this.open(), this.retry);
      this.retry = Math.min(this.retry * 2, LAST_RETRY_MS);
    };
    socket.onopen = () => {
      this.state = 'live';
      this.retry = FIRST_RETRY_MS;
      connection.noteAnswer();
      // Values that arrived while there was no socket.
      this.load([...this.needed]).catch(() => undefined);
    };
    socket.onmessage = (event: MessageEvent<string>) => {
      heard = Date.now();
      this.receive(JSON.parse(event.data) as Message);
    };
    socket.onclose = ({ code }) => {
      // The login has ended: any request brings up the question for a new one.
      if (code === LOGIN_ENDED) void ask((client) => client.GET('/api/v1/auth/me')).catch(() => undefined);
      ended();
    };
  }

  private receive(message: Message): void {
    for (const { event_public_id, value, timestamp } of message.datapoints ?? []) {
      this.take(event_public_id, { value, time: Date.parse(timestamp) });
    }
    this.draw();
  }

  private take(channel: string, reading: Reading): void {
    if (this.needed.has(channel)) this.gathered.set(channel, reading);
    for (const listener of this.listeners) listener(channel, reading);
  }

  /** Shows what was gathered with the next frame, however many values there were. */
  private draw(): void {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      for (const [channel, reading] of this.gathered) this.newest.set(channel, reading);
      this.gathered.clear();
    });
  }
}

export const values = new LiveValues();
