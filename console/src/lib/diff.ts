/** How one state of a resource differs from the one before it. */
export interface Change {
  path: string;
  from: unknown;
  to: unknown;
}

const isTree = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

export function differences(from: unknown, to: unknown, path = ''): Change[] {
  if (isTree(from) && isTree(to)) {
    const names = [...new Set([...Object.keys(from), ...Object.keys(to)])];
    return names.flatMap((name) => differences(from[name], to[name], path ? `${path}.${name}` : name));
  }
  return JSON.stringify(from) === JSON.stringify(to) ? [] : [{ path: path || '/', from, to }];
}
