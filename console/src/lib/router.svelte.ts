/** The address is the view: path and query say what is shown, and every view can be linked to. */
/** A malformed escape stands for itself: the rest of the address may still name a page. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Router {
  path = $state(location.pathname);
  query = $state.raw(new URLSearchParams(location.search));

  constructor() {
    addEventListener('popstate', () => this.read());
    document.addEventListener('click', (event) => this.follow(event));
  }

  /** Parts of the path: `/files/jobs/4` is `['files', 'jobs', '4']`. */
  get parts(): string[] {
    return this.path.split('/').filter(Boolean).map(decoded);
  }

  get(name: string): string | null {
    return this.query.get(name);
  }

  go(address: string, options: { replace?: boolean } = {}): void {
    if (options.replace) history.replaceState(null, '', address);
    else history.pushState(null, '', address);
    this.read();
    if (!options.replace) window.scrollTo(0, 0);
  }

  /** Changes parts of the query; null removes one. Replaces the address, because a filter is not a new page. */
  set(changes: Record<string, string | null>, options: { push?: boolean } = {}): void {
    this.go(this.with(changes), { replace: !options.push });
  }

  /** The present address with another query. */
  with(changes: Record<string, string | null>): string {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === '') query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    return text ? `${this.path}?${text}` : this.path;
  }

  private read(): void {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  /** Lets links of the console change the view without loading the page anew. */
  private follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest('a');
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
    if (/^\/(api|docs|metrics|health)(\/|$)/.test(link.pathname) || link.getAttribute('href')?.startsWith('#')) return;
    event.preventDefault();
    if (link.href !== location.href) this.go(link.pathname + link.search);
  }
}

export const router = new Router();
