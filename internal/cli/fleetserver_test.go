package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestUntrustedServer: a server whose certificate nobody vouches for is not taken for an agent that is away.
func TestUntrustedServer(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	_, err := runCommand(t, "host", "list", "--server", server.URL)
	message, hint := explain(err)
	if codeOf(err) != string(CodeNoServer) || !farm.IsKind(serverError(err), farm.Denied) ||
		message != "the server's certificate is not trusted: x509: certificate signed by unknown authority" ||
		hint == "" {
		t.Errorf("%v: %q, try %q", err, message, hint)
	}
}
