/** Pixels of a text of the usual size, for which heights of charts are written. */
const USUAL_PX = 14;

/** The height of a chart that is `pixels` high beside a text of the usual size: on a large screen, all grows. */
export function scaled(pixels: number): number {
  return Math.round((pixels * parseFloat(getComputedStyle(document.documentElement).fontSize)) / USUAL_PX);
}
