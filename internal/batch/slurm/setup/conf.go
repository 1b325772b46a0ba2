package setup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Setting is one key of a configuration, and where it is said.
type Setting struct {
	Key, Value string
	File       string
	Line       int
}

// Conf is slurm.conf, or a file of the same form: keys in any case, the last one counts, lines of nodes and partitions
// aside.
type Conf struct {
	Path     string
	settings map[string]Setting // by lower-case key
	nodes    []Setting          // lines of nodes: NodeName, and all behind it
	gres     []Setting          // lines of gres.conf that begin with Name
	Missing  bool
}

// Get is a key's value, "" where it is not said.
func (c Conf) Get(key string) string { return c.settings[strings.ToLower(key)].Value }

// Where is the file and line of a key; the file alone where it is not said.
func (c Conf) Where(key string) string {
	if s, ok := c.settings[strings.ToLower(key)]; ok {
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	}
	return c.Path
}

// List is a value that is a list with commas, in lower case.
func (c Conf) List(key string) []string {
	var all []string
	for _, word := range strings.Split(strings.ToLower(c.Get(key)), ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

const mostIncludes = 64

// ReadConf reads a file and what it includes. A file that is not there is an empty one, and says so.
func ReadConf(path string) (Conf, error) {
	c := Conf{Path: path, settings: map[string]Setting{}}
	budget := mostIncludes
	err := c.read(path, &budget)
	if errors.Is(err, fs.ErrNotExist) {
		c.Missing = true
		return c, nil
	}
	return c, err
}

func (c *Conf) read(path string, budget *int) error {
	if *budget--; *budget < 0 {
		return badConf(path, 0, fmt.Sprintf("more than %d included files", mostIncludes))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for n, whole := 0, ""; lines.Scan(); {
		n++
		whole += lines.Text()
		if strings.HasSuffix(whole, "\\") { // goes on in the next line
			whole = strings.TrimSuffix(whole, "\\")
			continue
		}
		line := strings.TrimSpace(uncomment(whole))
		whole = ""
		if line == "" {
			continue
		}
		if word, rest, _ := strings.Cut(line, " "); strings.EqualFold(word, "include") {
			rest = strings.TrimSpace(rest)
			if !filepath.IsAbs(rest) {
				rest = filepath.Join(filepath.Dir(path), rest)
			}
			if err := c.read(rest, budget); err != nil {
				return err
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return badConf(path, n, fmt.Sprintf("invalid line %q: expected KEY=VALUE", line))
		}
		key = strings.TrimSpace(key)
		switch strings.ToLower(key) {
		case "nodename":
			c.nodes = append(c.nodes, Setting{key, value, path, n})
			continue
		case "name":
			c.gres = append(c.gres, Setting{key, value, path, n})
			continue
		case "partitionname", "nodeset", "downnodes", "frontendname", "nodesetname":
			continue
		}
		c.settings[strings.ToLower(key)] = Setting{key, strings.Trim(strings.TrimSpace(value), `"`), path, n}
	}
	return lines.Err()
}

// uncomment cuts at #, which a backslash keeps.
func uncomment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] != '\\') {
			return line[:i]
		}
	}
	return line
}

func badConf(path string, line int, what string) error {
	if line > 0 {
		path = fmt.Sprintf("%s:%d", path, line)
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadSlurmConf, Message: path + ": " + what,
		Hint: "slurmd would not start with it either; see slurm.conf(5)"}
}

// Entry is a line of plugstack.conf.
type Entry struct {
	Required bool
	Path     string
	Args     map[string]string
	Where    string
}

// ReadPlugstack reads plugstack.conf and what it includes, in Slurm's order.
func ReadPlugstack(path string) (entries []Entry, missing bool, err error) {
	budget := mostIncludes
	entries, err = readPlugstack(path, &budget)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	return entries, false, err
}

func readPlugstack(path string, budget *int) ([]Entry, error) {
	if *budget--; *budget < 0 {
		return nil, badConf(path, 0, fmt.Sprintf("more than %d included files", mostIncludes))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for n, line := range strings.Split(string(text), "\n") {
		// As Slurm does it: keywords in lower case, a carriage return is part of a word, and no backslash keeps a #.
		line, _, _ := strings.Cut(line, "#")
		fields := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
		if len(fields) == 0 {
			continue
		}
		switch word := fields[0]; {
		case word == "include" && len(fields) == 2:
			pattern := fields[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(path), pattern)
			}
			files, _ := filepath.Glob(pattern)
			sort.Strings(files)
			for _, file := range files {
				if strings.HasPrefix(filepath.Base(file), ".") && !strings.HasPrefix(filepath.Base(pattern), ".") {
					continue // glob(3) of C, which Slurm calls, passes over them
				}
				more, err := readPlugstack(file, budget)
				if err != nil {
					return nil, err
				}
				all = append(all, more...)
			}
		case (word == "required" || word == "optional") && len(fields) >= 2:
			e := Entry{Required: word == "required", Path: fields[1], Args: map[string]string{},
				Where: fmt.Sprintf("%s:%d", path, n+1)}
			for _, arg := range fields[2:] {
				key, value, _ := strings.Cut(arg, "=")
				e.Args[key] = value
			}
			all = append(all, e)
		default:
			return nil, badConf(path, n+1,
				fmt.Sprintf("%q is neither required, optional nor include", strings.TrimSpace(line)))
		}
	}
	return all, nil
}

// Ours is grange's line; ok is false where there is none.
func Ours(entries []Entry) (Entry, bool) {
	for _, e := range entries {
		if filepath.Base(e.Path) == PluginName {
			return e, true
		}
	}
	return Entry{}, false
}
