export type * from '../../../clients/typescript/schema.d.ts';
