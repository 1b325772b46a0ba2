// An issuer for tests: oidc-provider from npm, with its own pages for signing in and consenting. Its only
// argument is a file of JSON; see settings in provider.go.
import fs from 'node:fs';
import https from 'node:https';
import Provider from 'oidc-provider';

const c = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const provider = new Provider(c.issuer, {
	clients: c.clients,
	clientDefaults: { id_token_signed_response_alg: 'ES256' },
	jwks: c.jwks,
	cookies: { keys: ['of a test'] },
	conformIdTokenClaims: false,
	claims: { openid: ['sub'], profile: c.claims },
	scopes: ['openid', 'profile'],
	pkce: { methods: ['S256'], required: () => true },
	features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
	findAccount: (_, id) => c.accounts[id] && {
		accountId: id,
		claims: () => ({ sub: id, ...c.accounts[id] }),
	},
});
https.createServer({ cert: c.certificate, key: c.key }, provider.callback())
	.listen(c.port, '127.0.0.1', () => console.log('up'));
