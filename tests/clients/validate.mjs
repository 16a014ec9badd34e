// Checks a description against OpenAPI 3.1 with Redocly's validator, and prints what it finds, a line each.
//
//     node tests/clients/validate.mjs FILE

import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

// The validator is a dependency of the generator of the console's types, pinned by its lock file.
const ofConsole = createRequire(new URL('../../console/package.json', import.meta.url));
const { createConfig, lintFromString } = createRequire(ofConsole.resolve('openapi-typescript'))('@redocly/openapi-core');

const rules = Object.fromEntries(
  [
    'struct',
    'no-unresolved-refs',
    'no-unused-components',
    'no-identical-paths',
    'no-enum-type-mismatch',
    'no-duplicated-tag-names',
    'no-schema-type-mismatch',
    'path-declaration-must-exist',
    'path-not-include-query',
    'path-parameters-defined',
    'operation-operationId',
    'operation-operationId-unique',
    'operation-operationId-url-safe',
    'operation-parameters-unique',
    'operation-summary',
    'no-invalid-media-type-examples',
    'no-invalid-schema-examples',
    'no-invalid-parameter-examples',
  ].map((rule) => [rule, 'error']),
);
const [file] = process.argv.slice(2);
const config = await createConfig({ extends: [], rules });
const problems = await lintFromString({ source: readFileSync(file, 'utf8'), absoluteRef: file, config });
for (const { ruleId, message, location } of problems) console.log(`${ruleId} ${location[0]?.pointer}: ${message}`);
process.exitCode = problems.length > 0 ? 1 : 0;
