package gridengine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Cell is a Grid Engine cell as its commands see it.
type Cell struct {
	Run program.Run // program.Start, or what plays recorded answers
	Env []string    // SGE_ROOT, SGE_CELL and the ports, where the commands' own defaults are not right
	Dir string      // where qconf, qstat and the others are; "": where programs of systems are
}

// FromEnvironment is the cell that SGE_ROOT and its like name, as for any command of Grid Engine.
func FromEnvironment(environ []string) *Cell {
	c := &Cell{Run: program.Start}
	for _, kv := range environ {
		key, value, _ := strings.Cut(kv, "=")
		switch key {
		case "SGE_ROOT":
			if found, _ := filepath.Glob(filepath.Join(value, "bin", "*", "qconf")); len(found) == 1 {
				c.Dir = filepath.Dir(found[0])
			}
			fallthrough
		case "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT", "SGE_CLUSTER_NAME":
			c.Env = append(c.Env, kv)
		}
	}
	return c
}

// accounting is where the cell's master writes down jobs that have ended, unless it was told another place; "": not
// known.
func (c *Cell) accounting() string {
	root, cell := "", "default"
	for _, kv := range c.Env {
		switch key, value, _ := strings.Cut(kv, "="); key {
		case "SGE_ROOT":
			root = value
		case "SGE_CELL":
			cell = value
		}
	}
	if root == "" {
		return ""
	}
	return filepath.Join(root, cell, "common", "accounting")
}

// call runs one of Grid Engine's commands.
func (c *Cell) call(ctx context.Context, name string, args ...string) (string, error) {
	if c.Dir != "" {
		name = filepath.Join(c.Dir, name)
	}
	out, err := c.Run(ctx, program.Call{Path: name, Args: args, Env: c.Env})
	// Commands of Grid Engine say what is wrong on either stream.
	if failed := new(program.Failed); errors.As(err, &failed) && failed.Said == "" {
		failed.Said = strings.TrimSpace(string(out))
	}
	return string(out), err
}

// Qconf changes or shows the configuration. What it says when it refuses is all there is: every refusal has status 1,
// and is farm.CodeQconf here.
func (c *Cell) Qconf(ctx context.Context, args ...string) (string, error) {
	out, err := c.call(ctx, "qconf", args...)
	failed := new(program.Failed)
	switch {
	case err == nil:
		return out, nil
	case !errors.As(err, &failed),
		program.Said(err, "unable to send message to qmaster", "unable to contact qmaster"):
		return out, batch.Away(farm.GridEngine, err)
	}
	// not Err too, which says the same again
	return out, &farm.Error{Kind: farm.Conflict, Code: farm.CodeQconf, Message: "qconf " + args[0] + ": " + failed.Said,
		Hint: "only a manager of the cell (qconf -sm) on an administrative host (qconf -sh) may change it"}
}

// QconfFile is Qconf with an option that takes a file, which it gives this text and name: for some objects the name is
// theirs. more is what stands behind the file.
func (c *Cell) QconfFile(ctx context.Context, name, text, option string, more ...string) error {
	dir, err := os.MkdirTemp("", "grange-qconf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, filepath.Base(name))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	_, err = c.Qconf(ctx, append([]string{option, path}, more...)...)
	return err
}

// Settings are an object as qconf shows it: a name and a value a line, long values over several lines that end in a
// backslash.
type Settings struct {
	keys   []string
	Values map[string]string
}

// ParseSettings reads what qconf shows.
func ParseSettings(text string) Settings {
	s := Settings{Values: map[string]string{}}
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(line, " ")
		if _, ok := s.Values[key]; !ok {
			s.keys = append(s.keys, key)
		}
		s.Values[key] = strings.Join(strings.Fields(value), " ")
	}
	return s
}

// Set changes a value, or adds it behind the others.
func (s *Settings) Set(key, value string) {
	if _, ok := s.Values[key]; !ok {
		s.keys = append(s.keys, key)
	}
	s.Values[key] = value
}

func (s Settings) String() string {
	var b strings.Builder
	for _, key := range s.keys {
		b.WriteString(key + " " + s.Values[key] + "\n")
	}
	return b.String()
}

// None reports whether a value stands for none.
func None(value string) bool { return value == "" || strings.EqualFold(value, "none") }
