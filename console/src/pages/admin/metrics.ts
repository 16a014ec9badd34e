/** Numbers of Prometheus' text format, added up over their labels. */
export type Sample = Map<string, number>;

export function parse(text: string): Sample {
  const sums: Sample = new Map();
  for (const line of text.split('\n')) {
    if (line.startsWith('#') || line === '') continue;
    const match = /^([\w:]+)(?:\{.*\})? (\S+)/.exec(line);
    const [name, value] = [match?.[1], Number(match?.[2])];
    if (name && Number.isFinite(value)) sums.set(name, (sums.get(name) ?? 0) + value);
  }
  return sums;
}

export interface Line {
  text: 'metrics.requests' | 'metrics.events' | 'metrics.datapoints' | 'metrics.latency' | 'metrics.lag' | 'metrics.work';
  unit: string;
  /** The value of a sample, given the one before it and the seconds between them. */
  value: (now: Sample, before: Sample, seconds: number) => number;
}

const rate = (name: string) => (now: Sample, before: Sample, seconds: number) => Math.max(0, ((now.get(name) ?? 0) - (before.get(name) ?? 0)) / seconds);
const gauge = (name: string) => (now: Sample) => now.get(name) ?? 0;
const HTTP = 'signalbox_http_request_duration_seconds';

export const LINES: Line[] = [
  { text: 'metrics.requests', unit: '1/s', value: rate(`${HTTP}_count`) },
  {
    text: 'metrics.latency', unit: 'ms',
    value: (now, before) => {
      const requests = (now.get(`${HTTP}_count`) ?? 0) - (before.get(`${HTTP}_count`) ?? 0);
      const seconds = (now.get(`${HTTP}_sum`) ?? 0) - (before.get(`${HTTP}_sum`) ?? 0);
      return requests > 0 ? (seconds / requests) * 1000 : 0;
    },
  },
  { text: 'metrics.events', unit: '1/s', value: rate('signalbox_events_appended_total') },
  { text: 'metrics.datapoints', unit: '1/s', value: rate('signalbox_datapoints_appended_total') },
  { text: 'metrics.lag', unit: '', value: gauge('signalbox_projection_lag_events') },
  { text: 'metrics.work', unit: '', value: gauge('signalbox_outstanding_work') },
];
