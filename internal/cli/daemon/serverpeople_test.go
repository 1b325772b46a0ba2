package daemon

import (
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/pki"
)

// One file is one authority: of two, each could sign the other's subjects.
func TestOneAuthorityAFile(t *testing.T) {
	var certs []*x509.Certificate
	for range 2 {
		ca, err := pki.NewCA(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		certs = append(certs, ca.Certificate)
	}
	file := func(all ...*x509.Certificate) string {
		var text []byte
		for _, c := range all {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		}
		path := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		path string
		good bool
	}{"one": {file(certs[0]), true}, "one twice": {file(certs[0], certs[0]), true}, "two": {file(certs...), false}} {
		_, err := newPeople(config.Server{People: map[string]config.Authority{"grid": {CA: c.path}}},
			slog.New(slog.DiscardHandler))
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
