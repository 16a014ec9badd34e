// A receiver of webhooks that verifies every delivery by npm's `standardwebhooks`, and a tampered copy of each.
//
//     node receiver.mjs SEED
//
// Prints its port. PUT of a path says by which secrets or public keys the deliveries to that path are signed; GET /report says what
// came. Ends with its standard input.

import { createPublicKey, verify } from 'node:crypto';
import { createServer } from 'node:http';
import { Webhook } from 'standardwebhooks';

let state = BigInt(process.argv[2]) & 0xffff_ffff_ffff_ffffn;

/** A whole number below `limit`, by splitmix64. */
function random(limit) {
  state = (state + 0x9e37_79b9_7f4a_7c15n) & 0xffff_ffff_ffff_ffffn;
  let mixed = state;
  mixed = ((mixed ^ (mixed >> 30n)) * 0xbf58_476d_1ce4_e5b9n) & 0xffff_ffff_ffff_ffffn;
  mixed = ((mixed ^ (mixed >> 27n)) * 0x94d0_49bb_1331_11ebn) & 0xffff_ffff_ffff_ffffn;
  return Number((mixed ^ (mixed >> 31n)) % BigInt(limit));
}

const other = (character, choices) => {
  const others = [...choices].filter((choice) => choice !== character);
  return others[random(others.length)];
};

/** `text` with another one of `choices` in place of one of its first `most` characters. */
function changed(text, choices, most = Infinity) {
  const characters = [...text];
  const at = random(Math.min(characters.length, most));
  characters[at] = other(characters[at], choices);
  return characters.join('');
}

const BASE64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

const TAMPERING = {
  body: ({ body, ...rest }) => {
    const at = random(body.length + 1);
    const ways = [
      () => changed(body, 'xyz09{}", ä'),
      () => [...body].slice(0, -1).join(''),
      () => `${body} `,
      () => `${[...body].slice(0, at).join('')} ${[...body].slice(at).join('')}`,
    ];
    return { body: ways[random(ways.length)](), ...rest };
  },
  id: ({ id, ...rest }) => ({ id: random(4) ? changed(id, '0123456789abcdef-') : `${id}0`, ...rest }),
  timestamp: ({ timestamp, ...rest }) => {
    // Within the tolerance of five minutes, so that the signature alone decides.
    const by = (1 + random(200)) * (random(2) ? 1 : -1);
    return { timestamp: String(Number(timestamp) + by), ...rest };
  },
  signature: ({ signature, ...rest }) => {
    // The last character but the padding does not count in full.
    const tampered = signature.split(' ').map((one) => {
      const [version, value] = one.split(',');
      return `${version},${changed(value, BASE64, Math.floor((value.replaceAll('=', '').length * 6) / 8 / 3) * 4)}`;
    });
    return { signature: tampered.join(' '), ...rest };
  },
};
const KINDS = Object.keys(TAMPERING);

/** By path: functions that throw unless a delivery is authentic. */
const verifiers = new Map();
const seen = new Set();
const report = { verified: 0, distinct: 0, faults: [], refused: Object.fromEntries(KINDS.map((kind) => [kind, 0])), accepted: [] };

const bySecret = ({ secret, raw }) => {
  const webhook = new Webhook(raw ? Buffer.from(secret) : secret, raw ? { format: 'raw' } : {});
  return ({ id, timestamp, signature, body }) =>
    webhook.verify(body, { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature });
};

/** The library knows no asymmetric signatures: Node's own cryptography verifies those, and the library refuses them. */
const byKey = ({ public_key }) => {
  const header = Buffer.from('302a300506032b6570032100', 'hex');
  const der = Buffer.concat([header, Buffer.from(public_key.replace('whpk_', ''), 'base64')]);
  const key = createPublicKey({ key: der, format: 'der', type: 'spki' });
  const library = new Webhook('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
  return ({ id, timestamp, signature, body }) => {
    const headers = { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature };
    let isKnown = true;
    try {
      library.verify(body, headers);
    } catch {
      isKnown = false;
    }
    if (isKnown) throw new Error('the library takes a v1a signature for its own');
    const signatures = signature.split(' ').filter((one) => one.startsWith('v1a,')).map((one) => one.slice(4));
    const content = Buffer.from(`${id}.${timestamp}.${body}`);
    if (!signatures.some((one) => verify(null, content, key, Buffer.from(one, 'base64')))) {
      throw new Error('no signature is by the key');
    }
  };
};

function judge(path, delivery) {
  const all = verifiers.get(path) ?? [];
  const failed = all.length === 0 ? 'nothing verifies this path' : all.map((authentic) => fault(authentic, delivery)).find(Boolean);
  if (failed) {
    report.faults.push(`${path}: ${failed}: ${JSON.stringify(delivery)}`);
    return 401;
  }
  const kind = KINDS[report.verified % KINDS.length];
  report.verified += 1;
  seen.add(`${path} ${delivery.id}`);
  report.distinct = seen.size;
  const tampered = TAMPERING[kind](delivery);
  if (all.every((authentic) => fault(authentic, tampered))) report.refused[kind] += 1;
  else report.accepted.push(`${path}, ${kind}: ${JSON.stringify({ delivery, tampered })}`);
  return 204;
}

function fault(authentic, delivery) {
  try {
    authentic(delivery);
    return null;
  } catch (error) {
    return String(error);
  }
}

function answer(request, body) {
  if (request.method === 'GET') return [200, JSON.stringify(report)];
  if (request.method === 'PUT') {
    verifiers.set(request.url, JSON.parse(body).map((by) => (by.public_key ? byKey(by) : bySecret(by))));
    return [204, ''];
  }
  const { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature } = request.headers;
  return [judge(request.url, { id, timestamp, signature, body }), ''];
}

const server = createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const [status, text] = answer(request, Buffer.concat(parts).toString());
    response.writeHead(status, { 'content-length': Buffer.byteLength(text) }).end(text);
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
