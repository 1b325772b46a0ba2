package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
)

// stolenBackup: whoever has a backup, or reads the database's files, is a server of the fleet.
func stolenBackup(ctx context.Context, s *site) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	thief, stolen, err := a.steal(ctx, s)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(a.path("farm.db*"))
	if err != nil {
		return err
	}
	for _, file := range append(files, stolen) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("PRIVATE KEY")) {
			return breach("%s has a private key in clear", filepath.Base(file))
		}
	}
	return a.servesBackup(ctx, thief, stolen)
}

// steal takes a backup into a directory of the thief's.
func (a *standalone) steal(ctx context.Context, s *site) (thief, stolen string, err error) {
	if thief, err = os.MkdirTemp(s.dir, "thief"); err != nil {
		return "", "", err
	}
	stolen = filepath.Join(thief, "stolen.db")
	_, err = a.grange(ctx, "server", "backup", "--config", a.path("server.toml"), stolen)
	return thief, stolen, err
}

// servesBackup starts the thief's server on a backup, and sees whether the fleet's hosts would believe it.
func (a *standalone) servesBackup(ctx context.Context, thief, stolen string) error {
	address, err := a.thiefsServer(thief, stolen)
	if err != nil {
		return err
	}
	if err = believed(ctx, address, a.roots); err == nil {
		return breach("a server on a backup alone has a certificate of the fleet's authority")
	}
	if text := a.log("thief.log"); !bytes.Contains([]byte(text), []byte("ca-key-file-missing")) &&
		!bytes.Contains([]byte(text), []byte("is not there")) {
		return errors.Join(errors.New("the thief's server fails for another reason: "+text), err)
	}
	return nil
}

// thiefsServer starts a server on a stolen database.
func (a *standalone) thiefsServer(thief, stolen string) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = l.Addr().String()
	l.Close()
	config := filepath.Join(thief, "server.toml")
	text := fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\n", stolen, filepath.Join(thief, "s.sock"),
		address, "https://"+address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", err
	}
	_, err = a.background("thief.log", "server", "--config", config)
	return address, err
}

// believed waits until a server shows a certificate of some authorities.
func believed(ctx context.Context, address string, roots *x509.CertPool) error {
	return await(ctx, 10*time.Second, func() error {
		c, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext(ctx, "tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// retiredCA: the CA's key got out, with the file that seals it, and so did a host's certificate. The administrator
// replaces the CA while the host lives.
func retiredCA(ctx context.Context, s *site) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	thief, stolen, err := a.steal(ctx, s)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(a.path("ca.key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(thief, "ca.key"), key, 0o600)
	}
	if err != nil {
		return err
	}
	oldHost, oldRoots := a.host, a.roots
	if _, err := a.grange(ctx, "server", "ca", "rotate"); err != nil {
		return breach("the CA cannot be replaced: %v", err)
	}
	if err := await(ctx, 2*time.Minute,
		func() error { _, err := a.grange(ctx, "server", "ca", "retire"); return err }); err != nil {
		return fmt.Errorf("the host is not ready: %w", err)
	}
	address, err := a.thiefsServer(thief, stolen)
	if err != nil {
		return err
	}
	if err := believed(ctx, address, oldRoots); err != nil {
		return fmt.Errorf("this attack does not work at all, the thief's server has no certificate of the old CA: %w",
			err)
	}
	err = await(ctx, 2*time.Minute, func() error { // the host forgets the old one with its next report
		if err := a.identity("first"); err != nil {
			return err
		}
		if believed(ctx, address, a.roots) == nil {
			return breach("a host believes who has the key of the retired CA")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.retiredHost(ctx, oldHost)
}

// retiredHost asks as a host with a certificate of the retired CA, and as the host that has a new one.
func (a *standalone) retiredHost(ctx context.Context, old tls.Certificate) error {
	for _, c := range []struct {
		shown tls.Certificate
		want  int
		// the body makes no sense: who comes as far as that is let in
	}{{a.host, http.StatusBadRequest}, {old, http.StatusForbidden}} {
		r, err := http.NewRequestWithContext(ctx, "POST", a.url()+fleet.RouteReport, strings.NewReader("?"))
		if err != nil {
			return err
		}
		r.Header.Set(fleet.CapabilityHeader, fmt.Sprint(fleet.Capability))
		answer, err := a.client(c.shown).Do(r)
		if err != nil {
			return err
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != c.want && c.want == http.StatusForbidden {
			return breach("a certificate of the retired CA is taken: %s %s", answer.Status, text)
		}
		if answer.StatusCode != c.want {
			return fmt.Errorf("the host's new certificate: %s %s", answer.Status, text)
		}
	}
	return nil
}
