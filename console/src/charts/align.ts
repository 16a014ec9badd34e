/** Series of different times in one table, as the chart draws them. */
import type uPlot from 'uplot';

interface Columns { xs: number[]; ys: number[] }
type Cell = number | undefined;

/** Rows of a table of exact times; beyond them it is drawn by bins. */
const EXACT_ROWS = 4_000;
/** On wider charts a bin is wider than a pixel, so that a redraw still takes no longer than a frame. */
const MOST_BINS = 2_000;

/**
 * One column of times, and one of values for each series. Series that are measured at the same times are taken as they are, and
 * few points are joined exactly. Many points at different times would make a table with a row for each of them, almost all of
 * it empty: they are gathered in bins of one of the chart's `pixels`, of which each keeps the least and the greatest value.
 */
export function align(list: Columns[], from: number, to: number, pixels: number): uPlot.AlignedData {
  const filled = list.filter(({ xs }) => xs.length > 0);
  const first = filled[0];
  if (!first) return [[], ...list.map(() => [])];
  if (filled.every(({ xs }) => isSame(xs, first.xs))) return table(first.xs, list.map(({ xs, ys }) => (xs.length > 0 ? ys : [])));
  const points = filled.reduce((sum, { xs }) => sum + xs.length, 0);
  if (points <= EXACT_ROWS) return joined(list);
  const bins = Math.max(1, Math.min(MOST_BINS, Math.ceil(pixels)));
  return binned(list, from, (to - from) / bins, bins);
}

function table(xs: number[], columns: Cell[][]): uPlot.AlignedData {
  return [xs, ...columns] as uPlot.AlignedData;
}

function isSame(one: number[], other: number[]): boolean {
  if (one === other) return true;
  if (one.length !== other.length) return false;
  for (let at = 0; at < one.length; at += 1) if (one[at] !== other[at]) return false;
  return true;
}

function joined(list: Columns[]): uPlot.AlignedData {
  const xs = [...new Set(list.flatMap((series) => series.xs))].sort((a, b) => a - b);
  const rows = new Map(xs.map((x, row) => [x, row]));
  return table(xs, list.map((series) => {
    const column = new Array<Cell>(xs.length).fill(undefined);
    for (let at = 0; at < series.xs.length; at += 1) column[rows.get(series.xs[at] as number) as number] = series.ys[at];
    return column;
  }));
}

/** Bins start at multiples of `width`, so that values stay in theirs while the range moves. Each has two rows. */
function binned(list: Columns[], from: number, width: number, bins: number): uPlot.AlignedData {
  const first = Math.floor(from / width) - 1;
  const rows = 2 * (bins + 3);
  const xs = Array.from({ length: rows }, (_, row) => (first + row / 2 + 0.25) * width);
  return table(xs, list.map(({ xs: times, ys }) => {
    // Rows without a value stay holes: an array of numbers alone keeps them unboxed, and a redraw makes little garbage.
    const column = new Array<Cell>(rows);
    for (let at = 0; at < times.length;) {
      const bin = Math.floor((times[at] as number) / width);
      let [least, most] = [at, at];
      for (at += 1; at < times.length && Math.floor((times[at] as number) / width) === bin; at += 1) {
        if ((ys[at] as number) < (ys[least] as number)) least = at;
        if ((ys[at] as number) > (ys[most] as number)) most = at;
      }
      const row = 2 * (bin - first);
      if (row < 0 || row >= rows) continue;
      column[row] = ys[Math.min(least, most)];
      if (least !== most) column[row + 1] = ys[Math.max(least, most)];
    }
    return column;
  }));
}
