// The OpenID provider that the tests of single sign-on log in at: oidc-provider as it is, with one client and the people of
// its argument, behind its own pages for logging in and consenting.
//
//     node provider.mjs '{"host": "localhost", "redirect_uri": "http://…", "people": {"ada": {"email": "…"}}}'
//
// It prints its issuer, and serves until its standard input ends. A test makes it do what no good provider does:
//     POST /test/rotate             it signs with new keys from then on, and forgets who was logged in
//     POST /test/lie {"nonce": "x"} ID tokens say that from then on, signed by the provider's own key

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { exportJWK, generateKeyPair, importJWK, decodeJwt, SignJWT } from "jose";
import Provider from "oidc-provider";

// The parent process reads one line.
console.info = console.warn;

const settings = JSON.parse(process.argv[2]);
let app, key, lies = {};

async function makeKey() {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  return { ...(await exportJWK(privateKey)), kid: randomUUID(), alg: "RS256", use: "sig" };
}

async function altered(token) {
  const claims = { ...decodeJwt(token), ...lies };
  return new SignJWT(claims).setProtectedHeader({ alg: "RS256", kid: key.kid }).sign(await importJWK(key, "RS256"));
}

async function start(issuer) {
  key = await makeKey();
  const provider = new Provider(issuer, {
    clients: [{
      client_id: settings.client_id,
      client_secret: settings.client_secret,
      redirect_uris: [settings.redirect_uri],
      token_endpoint_auth_method: settings.client_secret ? "client_secret_basic" : "none",
    }],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["preferred_username"] },
    conformIdTokenClaims: !settings.email_in_id_token,
    cookies: { keys: [randomUUID()] },
    jwks: { keys: [key] },
    pkce: { required: () => true },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...settings.people[id] }) }),
  });
  provider.use(async (context, next) => {
    await next();
    if (context.path === "/token" && context.body?.id_token && Object.keys(lies).length > 0) {
      context.body = { ...context.body, id_token: await altered(context.body.id_token) };
    }
  });
  app = provider.callback();
}

async function obey(request, response) {
  let body = "";
  for await (const piece of request) body += piece;
  if (request.url === "/test/rotate") await start(issuer);
  if (request.url === "/test/lie") lies = JSON.parse(body);
  response.writeHead(204).end();
}

const server = createServer((request, response) =>
  request.url.startsWith("/test/") ? obey(request, response) : app(request, response));
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://${settings.host}:${server.address().port}`;
await start(issuer);
console.log(issuer);
process.stdin.resume().on("end", () => process.exit());
