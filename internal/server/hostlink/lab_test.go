package hostlink

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hub"
	"github.com/grange-project/grange/internal/store"
)

// lab are links alone, with a cell east. What they are together with all else of a server is tested there.
type lab struct {
	*Links
	t *testing.T
}

func newLabOn(t *testing.T, url string) *lab {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &lab{t: t}
	l.Links = newLinks(st, l.clock, filepath.Join(t.TempDir(), "ca.key"))
	l.update(func(tx *store.Tx) error { return tx.PutCell(farm.Cell{Name: "east", Default: true}.WithDefaults()) })
	return l
}

func newLinks(st *store.Store, now func() time.Time, keys string) *Links {
	log := slog.New(slog.DiscardHandler)
	return New(Options{Actions: action.New(st, log, now), Store: st, Log: log, Now: now, CAKeyFile: keys,
		Hub: hub.New(KeyOf)})
}

func (l *lab) clock() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func (l *lab) update(do func(*store.Tx) error) {
	l.t.Helper()
	if _, err := l.Store.Update(l.t.Context(), do); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) view(do func(*store.Tx) error) {
	l.t.Helper()
	if err := l.Store.View(l.t.Context(), do); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) joinedFingerprint() string {
	l.t.Helper()
	cas, err := l.Authorities(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return cas.Present.Fingerprint()
}

func (l *lab) joinToken() string {
	l.t.Helper()
	_, text, err := l.CreateJoinToken(l.t.Context(), farm.Identity{Root: true}, JoinOrder{Cell: "east"})
	if err != nil {
		l.t.Fatal(err)
	}
	return text
}

// joined is the certificate of a host that joined.
func (l *lab) joined(name string) []*x509.Certificate {
	l.t.Helper()
	a, err := l.Enrol(l.t.Context(), nil, fleet.EnrolRequest{Token: l.joinToken(), CSR: l.request(), Name: name,
		MachineID: name, Now: l.clock()})
	if err != nil {
		l.t.Fatal(err)
	}
	return parsed(l.t, a.Certificate)
}

func (l *lab) request() []byte {
	l.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		l.t.Fatal(err)
	}
	csr, err := pki.NewRequest(key)
	if err != nil {
		l.t.Fatal(err)
	}
	return csr
}

func parsed(t *testing.T, text []byte) []*x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{c}
}

// code is the code of an error; "" of none.
func code(err error) farm.Code {
	own := new(farm.Error)
	errors.As(err, &own)
	return own.Code
}
