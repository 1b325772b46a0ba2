package config

import (
	"fmt"
	"net/url"
)

// Uplink is how the host reaches its server. What it is to that server is no configuration: `grange host join` makes
// it.
type Uplink struct {
	URLs []string // tried before those that the server named; none: only those
}

type uplinkFile struct {
	URLs []string `toml:"urls"`
}

func (f uplinkFile) uplink() (Uplink, error) {
	for _, text := range f.URLs {
		if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Host == "" {
			return Uplink{}, fmt.Errorf("server.urls: %q is not https://HOST:PORT", text)
		}
	}
	return Uplink(f), nil
}
