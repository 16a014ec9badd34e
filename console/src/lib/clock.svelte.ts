/** The time of day: one timer for the whole page, and the server's clock where the browser's is wrong. */

/** Times of the server have whole seconds and travel: smaller differences are not corrected. */
const TOLERATED_MS = 5_000;
const SLOWEST_MS = 2_000;

class Ticker {
  now = $state(Date.now());
  /** How far the server's clock is ahead of the browser's. */
  private ahead = 0;

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = this.read();
    }, 1000);
    document.addEventListener('visibilitychange', () => (this.now = this.read()));
  }

  /** The time of the server, in milliseconds since 1970, at any moment rather than at the last tick. */
  read(): number {
    return Date.now() + this.ahead;
  }

  /** Learns from a response to a request that was sent at `sent`, by the browser's clock. */
  learn(response: Response, sent: number): void {
    const received = Date.now();
    const time = Date.parse(response.headers.get('date') ?? '');
    // A response that took long says little, and so does one between which the browser's clock was set.
    if (!(time > 0) || received < sent || received - sent > SLOWEST_MS) return;
    const ahead = time + 500 - (sent + received) / 2;
    const measured = Math.abs(ahead) > TOLERATED_MS ? ahead : 0;
    if (Math.abs(measured - this.ahead) <= TOLERATED_MS) return;
    this.ahead = measured;
    this.now = this.read();
  }
}

export const ticker = new Ticker();
