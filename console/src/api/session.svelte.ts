/** The current login. When it ends, requests wait until the same user has logged in again; nothing typed is lost. */
export interface User {
  name: string;
  email: string;
  role: 'admin' | 'operator' | 'viewer';
  publicId: string;
}

interface Stored {
  token: string;
  expiresAt: string;
  user: User;
}

const STORED = 'signalbox.session';
const RANKS = { viewer: 0, operator: 1, admin: 2 } as const;

function load(): Stored | null {
  try {
    const stored = JSON.parse(localStorage.getItem(STORED) ?? 'null') as Partial<Stored> | null;
    const isWhole = typeof stored?.token === 'string' && typeof stored.user?.publicId === 'string' && stored.user.role in RANKS;
    return isWhole ? (stored as Stored) : null;
  } catch {
    return null;
  }
}

class Session {
  private stored = $state.raw<Stored | null>(load());
  /** True while the login has ended and a new one is asked for over the page. */
  hasEnded = $state(false);
  private waiting: (() => void)[] = [];

  constructor() {
    // Another tab has logged in or out, or site data was cleared, which has no key.
    addEventListener('storage', (event) => {
      if (event.key !== STORED && event.key !== null) return;
      const stored = load();
      // The page, its forms and its waiting requests belong to the former user: none of it may be sent in the name of another.
      if (stored && this.user && stored.user.publicId !== this.user.publicId) {
        location.reload();
        return;
      }
      this.stored = stored;
      this.resume();
    });
  }

  get user(): User | null {
    return this.stored?.user ?? null;
  }

  get token(): string | null {
    return this.stored?.token ?? null;
  }

  get expiresAt(): number {
    return this.stored ? new Date(this.stored.expiresAt).getTime() : 0;
  }

  can(role: keyof typeof RANKS): boolean {
    return this.user !== null && RANKS[this.user.role] >= RANKS[role];
  }

  begin(token: string, expiresAt: string, user: User): void {
    this.stored = { token, expiresAt, user };
    localStorage.setItem(STORED, JSON.stringify(this.stored));
    this.resume();
  }

  renew(token: string, expiresAt: string): void {
    if (this.user) this.begin(token, expiresAt, this.user);
  }

  end(): void {
    this.stored = null;
    localStorage.removeItem(STORED);
    this.resume();
  }

  /** Asks for a new login and waits for it. `token` is the one that was refused. */
  async again(token: string | null): Promise<void> {
    if (token !== this.token) return;
    this.hasEnded = true;
    await new Promise<void>((resolve) => this.waiting.push(resolve));
  }

  private resume(): void {
    this.hasEnded = false;
    const waiting = this.waiting;
    this.waiting = [];
    for (const resolve of waiting) resolve();
  }
}

export const session = new Session();
