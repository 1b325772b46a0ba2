package gridlab

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"
)

// issuer is a token issuer: what a client and a computing element ask of one, and nothing else.
type issuer struct {
	url    string
	key    *rsa.PrivateKey
	server *http.Server
}

func startIssuer(certFile, keyFile string) (*issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	i := &issuer{url: fmt.Sprintf("https://localhost:%d/", listener.Addr().(*net.TCPAddr).Port), key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"issuer": i.url, "jwks_uri": i.url + "jwks",
			"id_token_signing_alg_values_supported": []string{"RS256"}})
	})
	mux.HandleFunc("GET /jwks", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"keys": []any{map[string]string{"kty": "RSA", "use": "sig", "alg": "RS256",
			"kid": keyID, "n": text(key.N.Bytes()), "e": text(big.NewInt(int64(key.E)).Bytes())}}})
	})
	i.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go i.server.ServeTLS(listener, certFile, keyFile)
	return i, nil
}

const keyID = "grid-1"

// token is a WLCG token (WLCG Common JWT Profiles 1.0) that allows its holder to run jobs at audience.
func (i *issuer) token(who, audience string) (string, error) {
	now := time.Now()
	head, err := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT", "kid": keyID})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]any{"wlcg.ver": "1.0", "iss": i.url, "sub": who, "aud": audience,
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix(),
		"jti": fmt.Sprint(now.UnixNano()), "wlcg.groups": []string{"/atlas"},
		"scope": "compute.create compute.read compute.modify compute.cancel"})
	if err != nil {
		return "", err
	}
	signed := text(head) + "." + text(body)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, digest[:])
	if err != nil {
		return "", err
	}
	return signed + "." + text(signature), nil
}

func text(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
