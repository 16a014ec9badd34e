export type Theme = 'light' | 'dark' | 'system';

const STORED = 'signalbox.theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

class Themes {
  chosen = $state<Theme>((localStorage.getItem(STORED) as Theme | null) ?? 'system');
  private systemIsDark = $state(dark.matches);

  constructor() {
    dark.addEventListener('change', () => {
      this.systemIsDark = dark.matches;
      this.apply();
    });
    this.apply();
  }

  get isDark(): boolean {
    return this.chosen === 'dark' || (this.chosen === 'system' && this.systemIsDark);
  }

  choose(theme: Theme): void {
    this.chosen = theme;
    localStorage.setItem(STORED, theme);
    this.apply();
  }

  private apply(): void {
    document.documentElement.dataset.theme = this.isDark ? 'dark' : 'light';
  }
}

export const themes = new Themes();
