package setup

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Site is what there is to check: the server's side where its server starts on this host, the mom's where a mom does.
type Site struct {
	Root fs.FS // of this host
	Conf string
	// What /etc/pbs.conf says.
	Home, Exec         string
	HasServer, HasMom  bool
	SCP                string
	run                program.Run
	ctx                context.Context
	hooks, queues, all []object // the server's: hooks, queues, the server itself
	silent             error    // why the server could not be asked
}

// object is one of those that qmgr lists: a line with kind and name, and its attributes below.
type object struct {
	kind, name string
	has        map[string]string
}

func (o object) yes(key string) bool { return strings.EqualFold(o.has[key], "true") }

// parseObjects reads what `qmgr -c 'list ...'` prints. A value goes on in lines that are further in.
func parseObjects(text string) []object {
	var all []object
	last := ""
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "        ")
		words := strings.TrimLeft(line, " ")
		switch in := len(line) - len(words); {
		case words == "":
		case in == 0:
			kind, name, _ := strings.Cut(words, " ")
			all, last = append(all, object{kind, strings.TrimSpace(name), map[string]string{}}), ""
		case len(all) == 0:
		case in > 4 && last != "":
			all[len(all)-1].has[last] += strings.TrimSpace(words)
		default:
			key, value, _ := strings.Cut(words, "=")
			last = strings.TrimSpace(key)
			all[len(all)-1].has[last] = strings.TrimSpace(value)
		}
	}
	return all
}

// find is an object by kind and name; ok is false when the server has none.
func find(all []object, kind, name string) (object, bool) {
	for _, o := range all {
		if strings.EqualFold(o.kind, kind) && (name == "" || o.name == name) {
			return o, true
		}
	}
	return object{has: map[string]string{}}, false
}

// ReadSite reads pbs.conf, and asks the server when it is this host's: only root on its host may list hooks.
func ReadSite(ctx context.Context, root fs.FS, run program.Run, conf string) (*Site, error) {
	s := &Site{Root: root, Conf: conf, run: run, ctx: ctx, Home: "/var/spool/pbs", Exec: "/opt/pbs"}
	text, err := fs.ReadFile(root, strings.TrimPrefix(path.Clean(conf), "/"))
	if err != nil {
		return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeBatchConf,
			Message: "no configuration of PBS: " + err.Error(),
			Hint:    "run it on the server's host or on one where jobs run; --conf names pbs.conf"}
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch value = strings.Trim(strings.TrimSpace(value), `"'`); key {
		case "PBS_HOME":
			s.Home = value
		case "PBS_EXEC":
			s.Exec = value
		case "PBS_SCP":
			s.SCP = value
		case "PBS_START_SERVER":
			s.HasServer = value == "1"
		case "PBS_START_MOM":
			s.HasMom = value == "1"
		}
	}
	if !s.HasServer && !s.HasMom {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBatchConf,
			Message: conf + " starts neither a server nor a mom here",
			Hint:    "run it on the server's host or on one where jobs run"}
	}
	if s.HasServer {
		for _, ask := range []struct {
			what string
			into *[]object
		}{{"list hook", &s.hooks}, {"list queue @default", &s.queues}, {"list server", &s.all}} {
			out, err := s.qmgr(ask.what)
			if err != nil {
				s.silent = errors.Join(s.silent, err)
				continue
			}
			*ask.into = parseObjects(out)
		}
	}
	return s, nil
}

// qmgr asks the server.
func (s *Site) qmgr(command string) (string, error) {
	out, err := s.run(s.ctx, program.Call{Path: filepath.Join(s.Exec, "bin", "qmgr"), Args: []string{"-c", command},
		Env: []string{"PBS_CONF_FILE=" + s.Conf}})
	return string(out), err
}

// read is a file below PBS_HOME.
func (s *Site) read(name string) (text, where string, err error) {
	where = path.Join(s.Home, name)
	b, err := fs.ReadFile(s.Root, strings.TrimPrefix(where, "/"))
	return string(b), where, err
}

// hookConfig is what the hook reads: grange.json, as `grange pbs install` wrote it.
type hookConfig struct {
	Wrapper  []string `json:"wrapper"`
	Queues   []string `json:"queues"`
	Requeues *int     `json:"requeues"`
}

func parseHookConfig(text string) (c hookConfig, why string) {
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return c, "invalid JSON: " + err.Error()
	}
	switch line := strings.Join(c.Wrapper, " "); {
	case len(c.Wrapper) == 0 || !filepath.IsAbs(c.Wrapper[0]):
		return c, "it names no wrapper by an absolute path"
	case !strings.Contains(line, " exec --batch "+string(farm.PBS)):
		return c, "its wrapper is not grange's: " + line
	}
	return c, ""
}

const reinstall = "grange pbs install, and its install.sh on the server's host"

// Check looks at everything that this host has of PBS.
func Check(s *Site) []batch.Finding {
	var all []batch.Finding
	add := func(id string, f batch.Finding) {
		f.ID = id
		all = append(all, f)
	}
	if s.HasServer {
		s.checkServer(add)
	}
	if s.HasMom {
		s.checkMom(add)
	}
	return all
}

func good(found, where string) batch.Finding {
	return batch.Finding{Level: batch.Good, Found: found, Where: where}
}

// checkHookText compares the hook that PBS has with the one in this program.
func checkHookText(text, where string) batch.Finding {
	switch {
	case strings.TrimSpace(text) == "":
		return batch.Finding{Level: batch.Broken, Found: "the hook has no program", Where: where,
			Why: "jobs of the queues start on the host itself, or nowhere", Do: reinstall}
	case strings.TrimSpace(text) == strings.TrimSpace(string(Hook)):
		return good("as this grange has it", where)
	case !strings.Contains(text, "grange's hook for OpenPBS"):
		return batch.Finding{Level: batch.Broken, Found: "another program than grange's", Where: where,
			Why: "jobs start as that program says", Do: reinstall}
	}
	return batch.Finding{Level: batch.Warning, Found: "of another release of grange, or changed", Where: where,
		Why: "the wrapper and the hook are made for each other", Do: reinstall}
}

func checkHookConfig(text, where string) (hookConfig, batch.Finding) {
	c, why := parseHookConfig(text)
	if why != "" {
		return c, batch.Finding{Level: batch.Broken, Found: why, Where: where, Why: "the hook rejects every job",
			Do: reinstall}
	}
	if c.Requeues != nil && *c.Requeues < 1 {
		return c, batch.Finding{Level: batch.Advice, Found: "requeues is 0", Where: where,
			Why: "a job whose VM can not be started on one host fails instead of going to another",
			Do:  "grange pbs install --requeues 3"}
	}
	return c, good(strings.Join(c.Wrapper, " "), where)
}
