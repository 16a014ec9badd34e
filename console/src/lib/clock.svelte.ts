/** The time of day, for relative times and remaining times: one timer for the whole page. */
class Ticker {
  now = $state(Date.now());

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now();
    }, 1000);
    document.addEventListener('visibilitychange', () => (this.now = Date.now()));
  }
}

export const ticker = new Ticker();
