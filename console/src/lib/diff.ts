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

const ID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** A part of a resource as people read it: the beginning of an id is enough. */
export function placeText(path: string): string {
  return path.replace(/^\//, '').replaceAll(ID, (id) => `${id.slice(0, 8)}…`) || '/';
}

/** A value as people read it: the parts of a structure with their names, without those that are unset. */
export function valueText(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.length === 0 ? '[]' : value.map(valueText).join(', ');
  if (!isTree(value)) return JSON.stringify(value) ?? '';
  const parts = Object.entries(value).filter(([, part]) => part !== null);
  return parts.length === 0 ? '{}' : parts.map(([name, part]) => `${name}: ${valueText(part)}`).join(', ');
}
