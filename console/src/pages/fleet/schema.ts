/** Forms from the JSON schema of a plugin's class. Simple properties get a control each, the others a field for JSON. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  properties?: Record<string, Schema>;
  required?: string[];
}

export type Control = 'text' | 'number' | 'checkbox' | 'select' | 'json';

/** Entries with a field in the instance itself. */
const OWN = new Set(['instance_name', 'demo_mode', 'enabled']);

export interface Property {
  name: string;
  label: string;
  hint: string | undefined;
  control: Control;
  required: boolean;
  schema: Schema;
}

export function propertiesOf(schema: Schema): Property[] {
  return Object.entries(schema.properties ?? {})
    .filter(([name]) => !OWN.has(name))
    .map(([name, inner]) => ({
      name, label: inner.title ?? name, hint: inner.description, control: controlOf(inner),
      required: (schema.required ?? []).includes(name), schema: inner,
    }));
}

function controlOf({ type, enum: choices }: Schema): Control {
  if (choices) return 'select';
  const kinds = [type].flat();
  if (kinds.includes('boolean')) return 'checkbox';
  if (kinds.includes('integer') || kinds.includes('number')) return 'number';
  if (kinds.includes('string')) return 'text';
  return 'json';
}

/** The text of a control for `value`. */
export function shown(value: unknown, control: Control): string | number | boolean {
  if (control === 'checkbox') return value === true;
  if (value === undefined || value === null) return '';
  return control === 'json' ? JSON.stringify(value, null, 2) : typeof value === 'number' ? value : String(value);
}

/** The value that stands in a control; undefined for nothing. Throws where JSON is not valid. */
export function typed(value: string | number | boolean | null, { control, schema }: Property): unknown {
  if (control === 'checkbox') return value === true;
  if (value === '' || value === null) return undefined;
  if (control === 'json') return JSON.parse(String(value));
  if (control === 'select') return schema.enum?.find((choice) => String(choice) === String(value));
  return value;
}
