package config

import (
	"fmt"
	"path/filepath"

	"github.com/grange-project/grange/internal/metrics"
)

// Metrics says who may scrape this agent beside those who reach its socket.
type Metrics struct {
	Listen    string `toml:"listen"`     // HOST:PORT; "": nobody
	TokenFile string `toml:"token_file"` // that scrapers have to show; "": none, on the host's own addresses alone
	VMs       bool   `toml:"vms"`        // there are series for each VM, by its name
}

func (m Metrics) check() error {
	return checkListener("metrics.listen", m.Listen, "metrics.token_file", m.TokenFile)
}

func checkListener(key, address, tokenKey, token string) error {
	if err := (metrics.Listener{Address: address, TokenFile: token}).Check(); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if token != "" && !filepath.IsAbs(token) {
		return fmt.Errorf("%s: %q is not an absolute path", tokenKey, token)
	}
	return nil
}
