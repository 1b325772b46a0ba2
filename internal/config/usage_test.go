package config

import (
	"strings"
	"testing"
)

func TestUsageKeep(t *testing.T) {
	for _, text := range []string{"soon", "1h"} {
		_, err := ParseAgent([]byte(`usage_keep = "`+text+`"`), "agent.toml")
		if err == nil || !strings.Contains(err.Error(), "usage_keep") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
