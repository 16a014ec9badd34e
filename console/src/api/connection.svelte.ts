/** Whether the server answers. After an outage everything shown is asked for anew. */
const PROBE_MS = 2_000;

class Connection {
  isDown = $state(false);
  private probing = false;
  private back: (() => void)[] = [];

  /** Calls `listener` whenever the server is back. */
  onBack(listener: () => void): void {
    this.back.push(listener);
  }

  noteFailure(): void {
    this.isDown = true;
    if (!this.probing) void this.probe();
  }

  noteAnswer(): void {
    if (!this.isDown) return;
    this.isDown = false;
    for (const listener of this.back) listener();
  }

  private async probe(): Promise<void> {
    this.probing = true;
    while (this.isDown) {
      await new Promise((resolve) => setTimeout(resolve, PROBE_MS));
      const answered = await fetch('/livez', { cache: 'no-store' }).then((response) => response.ok, () => false);
      if (answered) this.noteAnswer();
    }
    this.probing = false;
  }
}

export const connection = new Connection();
