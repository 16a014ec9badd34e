import { messageOf } from './problems';

/** Short messages about what was done; a failure stays until it is closed. */
export interface Notice {
  id: number;
  tone: 'ok' | 'bad';
  text: string;
}

const SHOWN_MS = 4000;

class Notices {
  list = $state<Notice[]>([]);
  private last = 0;

  done(text: string): void {
    const id = this.add('ok', text);
    setTimeout(() => this.close(id), SHOWN_MS);
  }

  failed(error: unknown): void {
    this.add('bad', messageOf(error));
  }

  close(id: number): void {
    this.list = this.list.filter((notice) => notice.id !== id);
  }

  private add(tone: Notice['tone'], text: string): number {
    this.last += 1;
    this.list = [...this.list.slice(-3), { id: this.last, tone, text }];
    return this.last;
  }
}

export const notices = new Notices();
