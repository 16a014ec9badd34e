/** How one state of a resource differs from the one before it. */
export interface Change {
  path: string;
  from: unknown;
  to: unknown;
}

const isTree = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

export function differences(from: unknown, to: unknown, path = ''): Change[] {
  if (isTree(to) && (isTree(from) || from === undefined)) {
    // Each part of something new is a change of its own.
    const before = from ?? {};
    const names = [...new Set([...Object.keys(before), ...Object.keys(to)])];
    return names.flatMap((name) => differences(before[name], to[name], path ? `${path}.${name}` : name));
  }
  if (from === undefined && to === null) return [];
  return JSON.stringify(from) === JSON.stringify(to) ? [] : [{ path: path || '/', from, to }];
}
