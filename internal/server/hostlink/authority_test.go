package hostlink

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/store/storetest/postgres"
)

// clearAuthority puts an authority into a store as releases before the seal did, and returns its key in DER.
func (l *lab) clearAuthority() []byte {
	l.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		l.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "grange fleet"},
		NotBefore: l.clock(), NotAfter: l.clock().AddDate(20, 0, 0), KeyUsage: x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		l.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		l.t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{"certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: cert})), "key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
	if err != nil {
		l.t.Fatal(err)
	}
	l.update(func(tx *store.Tx) error { return tx.PutSetting(AuthoritySetting, text) })
	return der
}

// shows reports whether a key is in what is left of a database: as it is, in base64 at any place of a line, or by the
// word for it.
func shows(t *testing.T, file string, key []byte) bool {
	t.Helper()
	found, err := filepath.Glob(file + "*")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, f := range found {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		secret := key[36:68] // the number itself
		for shift := range 3 {
			encoded := base64.RawStdEncoding.EncodeToString(key[33+shift:])
			if bytes.Contains(text, []byte(encoded[:20])) {
				return true
			}
		}
		if bytes.Contains(text, secret) || bytes.Contains(text, []byte("PRIVATE KEY")) {
			return true
		}
	}
	return false
}

func TestAuthoritysKeyIsNotInTheDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "farm.db")
	l := newLabOn(t, file)
	old := l.clearAuthority()
	if !shows(t, file, old) {
		t.Fatal("this test does not find the key where it is")
	}
	before := l.joinedFingerprint()
	if shows(t, file, old) {
		t.Error("the key is still in the database, or its log")
	}
	backup := filepath.Join(t.TempDir(), "backup.db")
	if _, err := store.Backup(t.Context(), file, backup); err != nil {
		t.Fatal(err)
	}
	if shows(t, backup, old) {
		t.Error("the key is in a backup")
	}
	l.view(func(tx *store.Tx) error {
		if _, err := tx.Setting(wipeSetting); !action.Missing(err) {
			t.Errorf("it is to be wiped: %v", err)
		}
		return nil
	})
	next := func(path string) (pki.CAs, error) {
		return newLinks(l.Store, l.clock, path).Authorities(t.Context())
	}
	again, err := next(l.CAKeyFile)
	if err != nil || again.Present.Fingerprint() != before {
		t.Errorf("another server with the key file: %v", err)
	}
	nowhere, other := filepath.Join(t.TempDir(), "ca.key"), filepath.Join(t.TempDir(), "ca.key")
	if _, err := next(nowhere); code(err) != pki.CodeNoSeal {
		t.Errorf("without the key file: %v", err)
	}
	if _, err := os.Stat(nowhere); err == nil {
		t.Error("a key file was made that opens nothing")
	}
	if _, err := pki.MakeSeal(other); err != nil {
		t.Fatal(err)
	}
	if _, err := next(other); code(err) != pki.CodeBadSeal {
		t.Errorf("with another key file: %v", err)
	}
	if err := os.Chmod(other, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := next(other); code(err) != pki.CodeBadSeal || !strings.Contains(err.Error(), "others") {
		t.Errorf("a key file that others may read: %v", err)
	}
	if err := os.Truncate(other, 10); err == nil {
		err = os.Chmod(other, 0o600)
		if _, got := next(other); err != nil || code(got) != pki.CodeBadSeal {
			t.Errorf("half a key file: %v, %v", got, err)
		}
	}
}

// A crash between the seal and the wiping: the next start wipes.
func TestWipeAfterACrash(t *testing.T) {
	file := filepath.Join(t.TempDir(), "farm.db")
	l := newLabOn(t, file)
	old := l.clearAuthority()
	l.update(func(tx *store.Tx) error {
		text, err := tx.Setting(AuthoritySetting)
		if err != nil {
			return err
		}
		return l.sealAuthority(tx, text)
	})
	if !shows(t, file, old) {
		t.Skip("this SQLite leaves nothing of what was replaced")
	}
	if l.joinedFingerprint(); shows(t, file, old) {
		t.Error("the key is still in the database, or its log")
	}
}

// Who shows certificates of nobody has the store read some times, and not each time.
func TestStrangersReadLittle(t *testing.T) {
	l := newLabOn(t, filepath.Join(t.TempDir(), "farm.db"))
	joined := l.joined("wn-1")
	stranger, err := pki.NewCA(l.clock())
	if err != nil {
		t.Fatal(err)
	}
	issued, err := stranger.IssueHost("wn-1", l.request(), l.clock())
	if err != nil {
		t.Fatal(err)
	}
	chain, reads, last := parsed(t, issued.PEM), 0, int64(0)
	for range 100 {
		l.joinToken() // has the store at another revision
		if _, err := l.peer(t.Context(), chain); code(err) != pki.CodeUnknownCert {
			t.Fatal(err)
		}
		if at := l.cas.at; at != last {
			reads, last = reads+1, at
		}
	}
	if reads > 30 {
		t.Errorf("%d requests read the authorities anew", reads)
	}
	if _, err := l.HostAt(t.Context(), joined); err != nil {
		t.Errorf("a host: %v", err)
	}
}

// Two servers on one PostgreSQL: what one has sealed the other reads.
func TestAuthorityIsSealedOnPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a PostgreSQL")
	}
	pg, err := postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := pg.Create(context.WithoutCancel(t.Context()), "farm", ""); err != nil {
		t.Fatal(err)
	}
	l := newLabOn(t, pg.URL("farm"))
	st, err := store.Open(t.Context(), pg.URL("farm"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	other := newLinks(st, l.clock, l.CAKeyFile)
	l.clearAuthority()
	if cas, err := other.Authorities(t.Context()); err != nil || cas.Present.Fingerprint() != l.joinedFingerprint() {
		t.Errorf("the authority of before, sealed: %v", err)
	}
}
