/** Events of the log, newest first, without a gap: those that arrive go on top, and older ones are loaded below. */
import { ask, type Schemas } from '../../api/client';

export type LogEvent = Schemas['LogEventOut'];

export interface Filter {
  stream_type?: string | undefined;
  event_type?: string | undefined;
  actor?: string | undefined;
  correlation?: string | undefined;
  from?: string;
  to?: string;
}

/** The events since the last request, down to the known ones. */
export interface Arrived {
  chosen: string;
  events: LogEvent[];
  next: number | null;
  head: number;
  /** Whether the last of them is next to what is known; otherwise more arrived than is caught up with. */
  isJoined: boolean;
}

const PIECE = 100;
/** Events of a request for what arrived meanwhile, and such requests at most: beyond them the list starts anew. */
const CATCH_UP = 500;
const CATCH_UPS = 10;

export class LogRows {
  events = $state.raw<LogEvent[]>([]);
  /** The cursor of the events below; null where there are none. */
  next = $state<number | null>(null);
  head = $state(0);
  /** The filter that the events fit. */
  private chosen = '';

  /** The newest events, and all between them and those that are known. */
  async newest(chosen: string, filter: Filter, signal: AbortSignal): Promise<Arrived> {
    const known = chosen === this.chosen ? this.events[0]?.position : undefined;
    const first = await this.load(filter, null, PIECE, signal);
    let events = first.data;
    let next = first.next ?? null;
    const isJoined = () => known !== undefined && (next === null || (events.at(-1)?.position ?? 0) <= known);
    for (let asked = 0; known !== undefined && !isJoined() && asked < CATCH_UPS; asked += 1) {
      const piece = await this.load(filter, next, CATCH_UP, signal);
      events = [...events, ...piece.data];
      next = piece.next ?? null;
    }
    return { chosen, events, next, head: first.head, isJoined: isJoined() };
  }

  /** Puts what arrived on top. Events that are shown already keep their identity, and what a slow response lacks stays. */
  take({ chosen, events, next, head, isJoined }: Arrived): void {
    this.head = head;
    if (chosen !== this.chosen || !isJoined || this.events.length === 0) {
      this.chosen = chosen;
      this.events = events;
      this.next = next;
      return;
    }
    const known = this.events[0]?.position ?? 0;
    const fresh = events.filter(({ position }) => position > known);
    if (fresh.length > 0) this.events = [...fresh, ...this.events];
  }

  /** Loads the events below. */
  async loadOlder(filter: Filter): Promise<void> {
    const { chosen, next } = this;
    if (next === null) return;
    const piece = await this.load(filter, next, PIECE);
    // Another filter was chosen meanwhile, or the list started anew.
    if (chosen !== this.chosen || next !== this.next) return;
    this.events = [...this.events, ...piece.data];
    this.next = piece.next ?? null;
  }

  private load(filter: Filter, cursor: number | null, limit: number, signal?: AbortSignal) {
    const query = { ...filter, ...(cursor === null ? {} : { cursor }), limit };
    return ask((http) => http.GET('/api/v1/log', { params: { query }, ...(signal ? { signal } : {}) }));
  }
}
