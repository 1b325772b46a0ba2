package main

import (
	"context"
	"os"
	"strings"
)

// unkeptNetworks: what hosts would ignore is not stored.
func unkeptNetworks(ctx context.Context, s *site) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	for _, key := range []string{"vlan = 7", "closed = true"} {
		text := "[networks.tenant]\nbridge = \"br0\"\n" + key + "\n"
		if err := os.WriteFile(a.path("network.toml"), []byte(text), 0o600); err != nil {
			return err
		}
		_, err := a.grange(ctx, "apply", "-f", a.path("network.toml"))
		switch {
		case err == nil:
			return breach("the server stores `%s` of a network, and no host carries it out", key)
		case !strings.Contains(err.Error(), "[no-isolation]"):
			return err
		}
	}
	return nil
}
