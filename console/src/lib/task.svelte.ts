/** One thing that is being done at a time: whether it is under way, and why it did not work. */
export class Task {
  busy = $state(false);
  error = $state.raw<Error | null>(null);

  /** Gives back whether it succeeded. */
  async run(work: () => Promise<unknown>): Promise<boolean> {
    if (this.busy) return false;
    this.busy = true;
    this.error = null;
    try {
      await work();
      return true;
    } catch (error) {
      this.error = error instanceof Error ? error : new Error(String(error));
      return false;
    } finally {
      this.busy = false;
    }
  }
}
