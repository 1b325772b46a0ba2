package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// stolenBackup: whoever has a backup, or reads the database's files, is a server of the fleet.
func stolenBackup(ctx context.Context, s *site) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	thief, err := os.MkdirTemp(s.dir, "thief")
	if err != nil {
		return err
	}
	stolen := filepath.Join(thief, "stolen.db")
	if _, err := a.grange(ctx, "server", "backup", "--config", a.path("server.toml"), stolen); err != nil {
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

// servesBackup starts the thief's server on a backup, and sees whether the fleet's hosts would believe it.
func (a *standalone) servesBackup(ctx context.Context, thief, stolen string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	l.Close()
	config := filepath.Join(thief, "server.toml")
	text := fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\n", stolen, filepath.Join(thief, "s.sock"), address, "https://"+address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := a.background("thief.log", "server", "--config", config); err != nil {
		return err
	}
	err = await(ctx, 10*time.Second, func() error {
		c, err := (&tls.Dialer{Config: &tls.Config{RootCAs: a.roots}}).DialContext(ctx, "tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
	if err == nil {
		return breach("a server on a backup alone has a certificate of the fleet's authority")
	}
	if text := a.log("thief.log"); !bytes.Contains([]byte(text), []byte("ca-key-file-missing")) && !bytes.Contains([]byte(text), []byte("is not there")) {
		return errors.Join(errors.New("the thief's server fails for another reason: "+text), err)
	}
	return nil
}
