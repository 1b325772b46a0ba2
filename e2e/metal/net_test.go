package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// TestNetworks runs the cases of make test-net on the kernel of a host: one that follows connections on bridges, which
// security groups need.
func TestNetworks(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{})
	bringProgram(t, h, "net")
	out, err := h.Run(t.Context(), "/root/net -only forged,apart,made,groups")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var f struct {
		Leaked  int `json:"leaked_packets"`
		Spoofed int `json:"spoofed_accepted"`
		Left    int `json:"leaked"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &f); err != nil {
		t.Fatal(err, out)
	}
	if err != nil || f.Leaked+f.Spoofed+f.Left > 0 || strings.Contains(out, "skip ") {
		t.Errorf("%v\n%s", err, out)
	}
}
