// A real OpenID provider on loopback: signed access tokens for Kafka clients, by the client credentials grant.
//
// Standard input: one JSON object {port, httpsPort, certificate, key, signingKey, clients: [{id, secret}], audience,
// scope, seconds}. Standard output: "ready", then one JSON line for each token that was issued.

import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { createPrivateKey, randomBytes } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { Provider } from 'oidc-provider';

const options = JSON.parse(await text(process.stdin));
const issuer = `http://127.0.0.1:${options.port}`;
// A file, so that tokens of an earlier life stay good: brokers keep the keys that they know.
const signingKey = createPrivateKey(readFileSync(options.signingKey));
const signing = { ...signingKey.export({ format: 'jwk' }), use: 'sig', alg: 'ES256', kid: 'turnout-test' };

const provider = new Provider(issuer, {
  jwks: { keys: [signing] },
  cookies: { keys: [randomBytes(32).toString('hex')] },
  clients: options.clients.map(({ id, secret }) => ({
    client_id: id,
    client_secret: secret,
    id_token_signed_response_alg: 'ES256',
    grant_types: ['client_credentials'],
    response_types: [],
    redirect_uris: [],
  })),
  scopes: [options.scope],
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => options.audience,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        scope: options.scope,
        audience: options.audience,
        accessTokenTTL: options.seconds,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'ES256' } },
      }),
    },
  },
});

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
provider.on('client_credentials.issued', (token) => say({ issued: token.clientId }));
provider.on('grant.error', (ctx, error) => say({ refused: error.error }));
provider.on('server_error', (ctx, error) => say({ failed: String(error) }));

const listening = [http.createServer(provider.callback()).listen(options.port, '127.0.0.1')];
if (options.httpsPort) {
  const files = { cert: readFileSync(options.certificate), key: readFileSync(options.key) };
  listening.push(https.createServer(files, provider.callback()).listen(options.httpsPort, '127.0.0.1'));
}
await Promise.all(listening.map((server) => new Promise((resolve) => server.once('listening', resolve))));
process.stdout.write('ready\n');
