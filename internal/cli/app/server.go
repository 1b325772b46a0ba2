package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

const (
	// DefaultServerSocket is where a server on this machine listens for people of this machine.
	DefaultServerSocket = "/run/grange-server/server.sock"
	// siteClient is what a site tells all its users of its server.
	siteClient = "/etc/grange/client.toml"
)

// findServer finds the server: --server, $GRANGE_SERVER, the user's client.toml, the site's, a socket on this machine.
// The zero value: there is none. A token is never taken from the command line, where everybody on the machine can read
// it.
func (a *App) findServer() (fleet.Config, error) {
	found, tokenFile, err := a.ServerWithoutToken()
	if err == nil && tokenFile != "" {
		found.Token, err = readToken(tokenFile)
	}
	return found, err
}

// ServerWithoutToken is the server as commands find it, and the file whose token they show there; "": none.
func (a *App) ServerWithoutToken() (found fleet.Config, tokenFile string, err error) {
	c, err := config.ReadClient(userClient(), siteClient)
	if err != nil {
		return fleet.Config{}, "", err
	}
	server := c.Server
	if a.Server != "" {
		server = a.Server
	}
	if server == "" {
		if _, err := os.Stat(DefaultServerSocket); err != nil {
			return fleet.Config{}, "", nil
		}
		server = "unix://" + DefaultServerSocket
	}
	if strings.HasPrefix(server, "/") {
		server = "unix://" + server
	}
	found = fleet.Config{Server: server, Certificate: c.Certificate, Key: c.Key, CA: c.CA}
	tokenFile = os.Getenv("GRANGE_TOKEN_FILE")
	if tokenFile == "" && server == c.Server { // what was given for one server is not shown to another
		tokenFile = c.TokenFile
	}
	return found, tokenFile, nil
}

// userClient is the user's own client.toml.
func userClient() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "grange", "client.toml")
}

// readToken reads a secret, which must be its owner's alone.
func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return "", &farm.Error{Kind: farm.Denied, Code: CodeBadToken, Message: path + " can be read by others",
			Hint: "chmod 600 " + path + ", and have a new token made"}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", &farm.Error{Kind: farm.Invalid, Code: CodeBadToken, Message: "no token", Err: err,
			Hint: "name a file with a token in GRANGE_TOKEN_FILE or in client.toml's token_file"}
	}
	return strings.TrimSpace(string(text)), nil
}

// HasServer reports whether commands that the agent has too go to a server: not when somebody named an agent's socket
// and no server. A broken configuration counts: its error is then told.
func (a *App) HasServer() bool {
	if a.Server == "" && a.Socket != DefaultSocket {
		return false
	}
	c, err := a.findServer()
	return err != nil || c.Server != ""
}

// Here reports whether a command that the agent has too is for the agent of this host: there is no server, or the
// agent's socket was named, or --local.
func (a *App) Here(cmd *cobra.Command) bool {
	if local, err := cmd.Flags().GetBool("local"); err == nil && local {
		return true
	}
	if a.Server == "" && (cmd.Flags().Changed("socket") || os.Getenv("GRANGE_SOCKET") != "") {
		return true
	}
	return !a.HasServer()
}

// LocalFlag is for commands that both the server and the agent have.
func LocalFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("local", false, "query the agent of this host instead of the server")
	return cmd
}

// Fleet is a client for the server.
func (a *App) Fleet() (*fleet.Client, error) {
	c, err := a.findServer()
	if err != nil {
		return nil, err
	}
	return a.NewFleet(c)
}

// NewFleet is a client for a server that was found.
func (a *App) NewFleet(c fleet.Config) (*fleet.Client, error) {
	if c.Server == "" {
		return nil, &farm.Error{Kind: farm.Invalid, Code: CodeNoServer, Message: "no server is named",
			Hint: "--server URL, GRANGE_SERVER, or `server = \"https://…\"` in " + userClient()}
	}
	client, err := fleet.NewClient(c)
	if err != nil {
		return nil, &farm.Error{Kind: farm.Invalid, Code: CodeNoServer, Message: "no way to the server", Err: err,
			Hint: "see `server`, `ca`, `certificate` and `key` of client.toml"}
	}
	return client, nil
}

// serverError is why a request to the server has no answer; nil where err is something else.
func serverError(err error) *farm.Error {
	request := new(url.Error)
	if !errors.As(err, &request) {
		return nil
	}
	if untrusted := new(tls.CertificateVerificationError); errors.As(err, &untrusted) {
		return &farm.Error{Kind: farm.Denied, Code: CodeNoServer, Err: err,
			Message: "the server's certificate is not trusted: " + untrusted.Err.Error(),
			Hint: "name the certificate of its authority as `ca` in client.toml; the server's administrator prints it " +
				"with `grange server ca show --pem`"}
	}
	if !errors.Is(err, fleet.ErrNoServer) {
		return nil
	}
	own := &farm.Error{Kind: farm.Unavailable, Code: CodeNoServer, Message: request.Err.Error(), Err: err,
		Hint: "see whether it runs, and whether --server, GRANGE_SERVER or client.toml name it"}
	if errors.Is(err, syscall.EACCES) {
		own.Hint = "ask the server's administrator for access to its socket, or use its URL and a token"
	}
	return own
}

// OnServer is what a command does that asks the server.
func (a *App) OnServer(do func(context.Context, *fleet.Client, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.Fleet()
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, args)
	}
}

// Each does one thing after the other, and says so; the first that fails ends it.
func (a *App) Each(names []string, done string, do func(string) error) error {
	for _, name := range names {
		if err := do(name); err != nil {
			return err
		}
		if !a.JSON {
			fmt.Fprintf(a.Out, "%s %s\n", output.Visible(name), done)
		}
	}
	if a.JSON {
		return a.PrintJSON(map[string][]string{done: names})
	}
	return nil
}

// maxToken bounds what is read of a token's file.
const maxToken = 4096

// JoinToken reads a join token from a file, or from standard input where path is "-".
func JoinToken(path string) (string, error) {
	from := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage, Message: "no join token", Err: err,
				Hint: "name a file that has one, or - for standard input"}
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxToken))
	return strings.TrimSpace(string(text)), err
}
