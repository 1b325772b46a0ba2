package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

// DefaultConfig is where an agent's configuration is looked for.
const DefaultConfig = "/etc/grange/agent.toml"

// ReadConfig reads the configuration. A file that somebody named must be there: a mistyped name must not mean all
// defaults.
func ReadConfig(path string, named bool) (config.Agent, error) {
	if named {
		if _, err := os.Stat(path); err != nil {
			return config.Agent{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
				Message: "no configuration", Err: err, Hint: "name a file that exists, or leave --config out"}
		}
	}
	return config.ReadAgent(path)
}

// identityDir is where a host's identity is, for root alone.
func identityDir(c config.Agent) string { return filepath.Join(c.StateDir, "server") }

// OpenIdentityDir opens it, and makes it where it is not there.
func OpenIdentityDir(c config.Agent) (*os.Root, error) {
	dir := identityDir(c)
	if err := os.MkdirAll(c.StateDir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.OpenRoot(dir)
}
