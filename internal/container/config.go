package container

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/grange-project/grange/internal/farm"
)

// Config is what an image says of how its programs are run.
type Config struct {
	User       string            `json:"user,omitempty"`
	Env        []string          `json:"env,omitempty"` // NAME=value
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Workdir    string            `json:"workdir,omitempty"` // absolute, or ""
	Labels     map[string]string `json:"labels,omitempty"`
}

// mostConfig bounds a configuration: it becomes part of image.json, and of each job.
const mostConfig = 1 << 20

// Command is what runs where no command is given; empty: the image names none.
func (c Config) Command() []string { return slices.Concat(c.Entrypoint, c.Cmd) }

// configOf takes from an image's configuration what counts here.
func configOf(f *v1.ConfigFile) (Config, error) {
	c := Config{User: f.Config.User, Env: f.Config.Env, Entrypoint: f.Config.Entrypoint, Cmd: f.Config.Cmd,
		Workdir: f.Config.WorkingDir, Labels: f.Config.Labels}
	if c.Workdir != "" {
		c.Workdir = path.Join("/", c.Workdir)
	}
	c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(kv string) bool {
		key, _, ok := strings.Cut(kv, "=")
		return !ok || key == ""
	})
	return c, c.check()
}

// check refuses what no process can be started with.
func (c Config) check() error {
	for _, words := range [][]string{c.Env, c.Entrypoint, c.Cmd, {c.Workdir}} {
		if slices.ContainsFunc(words, func(w string) bool { return strings.ContainsRune(w, 0) }) {
			return badImage("the image's configuration has a NUL byte", brokenHint, nil)
		}
	}
	text, err := json.Marshal(c)
	if err != nil || len(text) > mostConfig {
		return badImage(fmt.Sprintf("the image's configuration has %d bytes", len(text)), brokenHint, err)
	}
	return nil
}

const brokenHint = "build the image again, or tell who made it"

// broken is an image that nobody should have made.
func broken(format string, args ...any) error {
	return badImage(fmt.Sprintf(format, args...), brokenHint, nil)
}

func badImage(message, hint string, err error) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadImage, Message: message, Hint: hint, Err: err}
}

// runtimePath is what container runtimes set where an image does not.
const runtimePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environment is the caller's environment over the image's. Of PATH the image's directories come first, and then the
// caller's, who may have bound some: a host's PATH knows nothing of where an image keeps its programs. Where PATH is
// there twice, the last was set for this job alone, and is taken as it is.
func (c Config) Environment(caller []string) []string {
	set, paths, path := map[string]bool{}, 0, ""
	for _, kv := range caller {
		key, value, _ := strings.Cut(kv, "=")
		if set[key] = true; key == "PATH" {
			paths, path = paths+1, value
		}
	}
	var env []string
	own := runtimePath
	for _, kv := range c.Env {
		if key, value, _ := strings.Cut(kv, "="); key == "PATH" {
			own = value
		} else if !set[key] {
			env = append(env, kv)
		}
	}
	if paths < 2 {
		dirs := strings.Split(own, ":")
		for dir := range strings.SplitSeq(path, ":") {
			if dir != "" && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
		path = strings.Join(dirs, ":")
	}
	for _, kv := range caller {
		if !strings.HasPrefix(kv, "PATH=") {
			env = append(env, kv)
		}
	}
	return append(env, "PATH="+path)
}
