package daemon

import (
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/config"
)

// TestListenerNames: hosts reach the listener by all that the configuration tells them.
func TestListenerNames(t *testing.T) {
	names := listenerNames(config.Server{Listen: "0.0.0.0:8443", URL: "https://one.example.org:8443",
		Servers: []string{"https://one.example.org:8443", "https://192.0.2.7", "https://[2001:db8::7]:8443"}})
	for _, want := range []string{"127.0.0.1", "one.example.org", "192.0.2.7", "2001:db8::7"} {
		if !slices.Contains(names, want) {
			t.Errorf("the certificate is not for %s: %q", want, names)
		}
	}
	if slices.Contains(names, "") {
		t.Errorf("an empty name: %q", names)
	}
}
