package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// TestUntrustedServer: a server whose certificate nobody vouches for is not taken for an agent that is away.
func TestUntrustedServer(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	a := &App{}
	list := &cobra.Command{Use: "list", RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
		_, _, err := c.Hosts.List(ctx, "")
		return err
	})}
	root := a.Tree(Group{"Hosts", []*cobra.Command{list}})
	root.SetArgs([]string{"list", "--server", server.URL})
	err := root.ExecuteContext(t.Context())
	message, hint := Explain(err)
	if CodeOf(err) != string(CodeNoServer) || !farm.IsKind(serverError(err), farm.Denied) ||
		message != "the server's certificate is not trusted: x509: certificate signed by unknown authority" ||
		hint == "" {
		t.Errorf("%v: %q, try %q", err, message, hint)
	}
}
