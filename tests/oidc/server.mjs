// A real OpenID provider on loopback: signed access tokens by the client credentials grant, for Kafka clients and for
// programs that call Turnout, and the sign-in of people.
//
// Standard input: one JSON object {host, port, httpsPort, certificate, key, signingKey, kid, clients: [{id, secret,
// groups}], audience, scope, seconds, people: file of {id: claims}, page, refresh}. Standard output: "ready",
// then one JSON line for each token that was issued.

import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { createPrivateKey, randomBytes } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { Provider } from 'oidc-provider';

const options = JSON.parse(await text(process.stdin));
const issuer = `http://${options.host ?? '127.0.0.1'}:${options.port}`;
// A file, so that tokens of an earlier life stay good: brokers keep the keys that they know.
const signingKey = createPrivateKey(readFileSync(options.signingKey));
const kid = options.kid ?? 'turnout-test';
const signing = { ...signingKey.export({ format: 'jwk' }), use: 'sig', alg: 'ES256', kid };
// Read each time, so that somebody can get another role meanwhile.
const claimsOf = (id) => JSON.parse(readFileSync(options.people))[id];
const byClient = (ctx) => ctx.oidc.params?.grant_type === 'client_credentials';

const provider = new Provider(issuer, {
  jwks: { keys: [signing] },
  cookies: { keys: [randomBytes(32).toString('hex')] },
  clients: options.clients.map(({ id, secret }) => ({
    client_id: id,
    client_secret: secret,
    id_token_signed_response_alg: 'ES256',
    ...(options.page
      ? {
          grant_types: ['client_credentials', 'authorization_code', 'refresh_token'],
          response_types: ['code'],
          redirect_uris: [`${options.page}/login/callback`],
          post_logout_redirect_uris: [`${options.page}/`],
        }
      : { grant_types: ['client_credentials'], response_types: [], redirect_uris: [] }),
  })),
  scopes: ['openid', 'offline_access', options.scope],
  // As the standard has it, claims of scopes are told by the userinfo endpoint, not by the ID token.
  claims: { openid: ['sub', 'groups'], profile: ['name'] },
  pkce: { required: () => true },
  ttl: { IdToken: 3600 },
  issueRefreshToken: async () => Boolean(options.refresh),
  findAccount: (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id, ...claimsOf(id) }) }),
  // Nobody is asked for consent.
  loadExistingGrant: async (ctx) => {
    const { client, session } = ctx.oidc;
    const known = session.grantIdFor(client.clientId);
    if (known) return ctx.oidc.provider.Grant.find(known);
    const grant = new ctx.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
    grant.addOIDCScope('openid profile email offline_access');
    await grant.save();
    return grant;
  },
  extraTokenClaims: (ctx, token) => options.clients.find(({ id }) => id === token.clientId)?.claims,
  features: {
    devInteractions: { enabled: Boolean(options.page) },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: (ctx) => (byClient(ctx) ? options.audience : undefined),
      useGrantedResource: (ctx) => byClient(ctx),
      getResourceServerInfo: (ctx, resource) => ({
        scope: options.scope,
        audience: resource,
        accessTokenTTL: options.seconds,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'ES256' } },
      }),
    },
  },
});

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
provider.on('client_credentials.issued', (token) => say({ issued: token.clientId }));
provider.on('grant.success', (ctx) => say({ granted: ctx.oidc.params.grant_type }));
provider.on('grant.error', (ctx, error) => say({ refused: error.error, why: error.error_detail }));
provider.on('authorization.error', (ctx, error) => say({ refused: error.error, why: error.error_description }));
provider.on('userinfo.error', (ctx, error) => say({ refused: error.error, why: error.error_detail }));
provider.on('server_error', (ctx, error) => say({ failed: String(error.stack ?? error) }));

const listening = [http.createServer(provider.callback()).listen(options.port, '127.0.0.1')];
if (options.httpsPort) {
  const files = { cert: readFileSync(options.certificate), key: readFileSync(options.key) };
  listening.push(https.createServer(files, provider.callback()).listen(options.httpsPort, '127.0.0.1'));
}
await Promise.all(listening.map((server) => new Promise((resolve) => server.once('listening', resolve))));
process.stdout.write('ready\n');
