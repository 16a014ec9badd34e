/**
 * Writes a brotli and a gzip version beside each built file, so that the server compresses nothing while it answers, and
 * empties the output folder first but for the file that keeps it in version control.
 */
import { readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';

const KEPT = '.gitignore';
const COMPRESSIBLE = /\.(css|html|js|json|svg)$/;

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    // Names that start with a dot are for tools.
    .filter((path) => statSync(path).isFile() && !/(^|\/)\./.test(path.slice(folder.length)));
}

export function compress(folder: string): Plugin {
  return {
    name: 'compress',
    apply: 'build',
    buildStart() {
      for (const name of readdirSync(folder)) {
        if (name !== KEPT) rmSync(join(folder, name), { recursive: true });
      }
    },
    closeBundle() {
      for (const path of filesBelow(folder).filter((path) => COMPRESSIBLE.test(path))) {
        const bytes = readFileSync(path);
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
      }
    },
  };
}
