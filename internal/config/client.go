package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/stricttoml"
)

// Client is where the command line finds its server, and what it shows there. The zero value says nothing.
type Client struct {
	Server      string // "https://server.example.org:7480", or "unix:///run/grange-server/server.sock"
	TokenFile   string
	Certificate string // file, PEM; so are the next two
	Key         string
	CA          string
}

type clientFile struct {
	Server      string `toml:"server"`
	TokenFile   string `toml:"token_file"`
	Certificate string `toml:"certificate"`
	Key         string `toml:"key"`
	CA          string `toml:"ca"`
}

// ReadClient reads the first of the files that is there; none: the zero value. Paths in it start from its directory.
func ReadClient(paths ...string) (Client, error) {
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Client{}, err
		}
		return parseClient(text, path)
	}
	return Client{}, nil
}

func parseClient(text []byte, path string) (Client, error) {
	var f clientFile
	if err := stricttoml.Unmarshal(text, &f); err != nil {
		return Client{}, badClient(path, err.Error())
	}
	c := Client(f)
	for _, p := range []*string{&c.TokenFile, &c.Certificate, &c.Key, &c.CA} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	if (c.Certificate == "") != (c.Key == "") {
		return Client{}, badClient(path, "certificate and key go together")
	}
	return c, nil
}

func badClient(path, what string) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig, Message: path + ": " + what,
		Hint: "docs/guide/api.md shows every key"}
}
